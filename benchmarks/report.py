"""Turns the runner's JSON into a table: `python -m benchmarks.report FILE [PAGE.md ...]`.

Prints it, and writes it between the markers of the pages named: no figure in the docs is typed by hand.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

BEGIN, END = "<!-- generated: figures -->", "<!-- end of figures -->"


def rows(results: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """What was measured, in words, and the figure."""
    by_name = {result["scenario"]: result["figures"] for result in results}
    found: list[tuple[str, str]] = []
    if drain := by_name.get("drain"):
        cpu = drain["drain_cpu_us"]
        found += [
            (
                f"{drain['jobs']:,} jobs due at one instant",
                f"gone in {drain['drain_s']:.1f} s: {drain['drain_per_s']:,} jobs/s",
            ),
            ("CPU time a job", ", ".join(f"{who} {us} us" for who, us in cpu.items())),
            ("memory of a waiting job", f"{drain['bytes_a_waiting_job']:.0f} bytes"),
            (
                "`enqueue_many` / 1,000 concurrent `await enqueue`, from one process",
                f"{drain['enqueue_many_per_s']:,} / {drain['concurrent_enqueue_per_s']:,} jobs/s",
            ),
        ]
    if latency := by_name.get("latency"):
        idle, late = latency["idle_enqueue_to_start"], latency["delayed_500_per_s_lateness"]
        found += [
            ("enqueue to start, idle system", f"p50 {idle['p50_ms']} ms, p99 {idle['p99_ms']} ms"),
            ("lateness of delayed jobs at 500/s", f"p50 {late['p50_ms']} ms, p99 {late['p99_ms']} ms"),
            ("calls an idle host makes", f"{latency['idle_calls_per_s']:.0f}/s"),
        ]
    if recovery := by_name.get("recovery"):
        for what, words in (("process_killed", "`kill -9` of a worker process"), ("host_killed", "loss of a host")):
            r = recovery[what]
            lease = f", lease {r['lease_s']:.0f} s" if "lease_s" in r else ""
            found.append(
                (
                    f"{words} with {r['interrupted']} running jobs{lease}",
                    f"all running elsewhere after {r['running_again_after_s']} s, {r['lost']} lost",
                )
            )
    if storm := by_name.get("cron_storm"):
        found += _storm_rows(storm)
    return found


def _storm_rows(figures: dict[str, Any]) -> list[tuple[str, str]]:
    storm, late, ratio = figures["storm"], figures["lateness"], figures["lateness_ratio"]
    found = [
        (
            f"{storm['schedules']:,} schedules due at one instant, one scheduler",
            f"all ready in {storm['ready_s']:.1f} s: {storm['ready_per_s']:,} occurrences/s",
        ),
        ("CPU time an occurrence", ", ".join(f"{who} {us} us" for who, us in storm["cpu_us"].items())),
        ("memory of a schedule", f"{figures['bytes_a_schedule']:.0f} bytes"),
    ]
    for what, at in late.items():
        count, _, rest = what.partition("_registered")
        words = f"lateness of {figures['due_each_second']:,} schedules a second, {int(count):,} registered"
        found.append((words + rest.replace("_", " "), f"p50 {at['p50_ms']:.0f} ms, p99 {at['p99_ms']:.0f} ms"))
    found.append(("lateness among many / among few", f"p50 {ratio['p50_ms']}x, p99 {ratio['p99_ms']}x"))
    return found


def table(results: list[dict[str, Any]]) -> str:
    lines = ["| what | measured |", "| --- | --- |", *(f"| {what} | {figure} |" for what, figure in rows(results))]
    return "\n".join(lines)


def write(page: Path, text: str) -> None:
    """Puts the table between the page's markers."""
    before, begin, rest = page.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{page} has no {BEGIN} ... {END}")
    page.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}")


def main(path: str, *pages: str) -> None:
    text = table(json.loads(Path(path).read_text()))
    for page in pages:
        write(Path(page), text)
    print(text)


if __name__ == "__main__":
    main(*sys.argv[1:])
