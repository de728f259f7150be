"""Judges a soak: every acknowledged enqueue against every effect, and every effect too many against the faults.

Pure: it gets what was asked, what handlers wrote down and what was broken, and answers a report. A job may end a second
time only if a fault hit the process that ran it, its supervisor or the server, between its start and the next one; and
each fault excuses one extra delivery of a job (a stop: one for each lease that can end meanwhile), no more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.faults import LEASE_S, Fault

# A claim whose reply lay in the socket of a stopped process starts just after the stop; lines and faults are written
# down by different processes.
SLACK_S = 0.5
SHOWN = 20  # of each kind of finding


@dataclass
class Ask:
    """One enqueue, from the call to its answer."""

    token: int
    kind: str
    began_s: float
    job_id: str = ""
    created: bool | None = None  # None: no answer, so it may be stored or not
    error: str = ""


@dataclass
class Run:
    """One delivery of a job, as its handler wrote it down."""

    token: int
    job_id: str
    attempt: int
    fence: int
    pid: int
    supervisor: int
    start_s: float
    finish: str = ""  # end, failed, cancelled; nothing: interrupted
    finish_s: float = 0.0
    next_s: float | None = None  # when the next delivery of the same job started


@dataclass
class Report:
    seed: int
    seconds: float
    jobs: int = 0
    by_kind: dict[str, int] = field(default_factory=dict)
    unanswered: int = 0  # enqueues that ended in an error, which is no promise
    existed: int = 0  # enqueues that found their key alive
    runs: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    cut_replies: int = 0
    lost: int = 0
    dead: int = 0
    ended_again: dict[str, int] = field(default_factory=dict)  # by cause
    run_again: dict[str, int] = field(default_factory=dict)  # every delivery but the first, by cause
    recovery: dict[str, dict[str, float]] = field(default_factory=dict)
    totals: dict[str, int] = field(default_factory=dict)
    drain_s: float = 0.0
    findings: list[str] = field(default_factory=list)

    def find(self, what: str, lines: Iterable[str]) -> None:
        found = list(lines)
        if found:
            self.findings.append(f"{what}: {len(found)}")
            self.findings += [f"  {line}" for line in found[:SHOWN]]


def read_runs(path: Path) -> list[Run]:
    """The effects file as runs, each with the start of the next delivery of its job."""
    runs: dict[tuple[int, int], Run] = {}
    twice = []
    for line in path.read_text().splitlines() if path.exists() else []:
        what, at_ns, token, job_id, attempt, fence, pid, supervisor = line.split(" ")
        at_s, key = int(at_ns) / 1e9, (int(token), int(fence))
        if what != "start":
            runs[key].finish, runs[key].finish_s = what, at_s
        elif key in runs:
            twice.append(line)
        else:
            runs[key] = Run(int(token), job_id, int(attempt), int(fence), int(pid), int(supervisor), at_s)
    assert not twice, f"started twice under the same fence: {twice[:SHOWN]}"
    later: dict[int, Run] = {}
    for run in sorted(runs.values(), key=lambda r: r.fence, reverse=True):
        run.next_s = later[run.token].start_s if run.token in later else None
        later[run.token] = run
    return sorted(runs.values(), key=lambda r: r.fence)


class Checker:
    def __init__(self, asks: list[Ask], runs: list[Run], faults: list[Fault], dead: set[str]) -> None:
        self._asks = asks
        self._faults = faults
        self._dead = dead
        self._runs = runs
        self._of: dict[int, list[Run]] = {}
        for run in runs:
            self._of.setdefault(run.token, []).append(run)

    def judge(self, report: Report) -> None:
        stored = [ask for ask in self._asks if ask.created or (ask.created is None and ask.token in self._of)]
        report.jobs = len(stored)
        report.by_kind = dict(Counter(ask.kind for ask in stored))
        report.unanswered = sum(ask.created is None for ask in self._asks)
        report.existed = sum(ask.created is False for ask in self._asks)
        report.runs = len(self._runs)
        report.dead = len(self._dead)
        self._lost(report)
        self._extra(report)
        report.find("buried, though attempts were left", sorted(self._dead))
        found_alive = [ask for ask in self._asks if ask.created is False]
        odd = [ask for ask in self._asks if ask.error and not ask.error.startswith("StoreUnavailable")]
        report.find("enqueues refused", [str(ask) for ask in odd])
        report.find("ran, though its key lived", [str(ask) for ask in found_alive if ask.token in self._of])
        if report.totals.get("done") != report.jobs - report.dead:
            report.find("counted", [f"{report.totals.get('done')} done of {report.jobs} jobs, {report.dead} dead"])
        report.recovery = {
            kind: self._recovery(f"kill {kind}") for kind in ("worker", "supervisor") if self._recovery(f"kill {kind}")
        }

    # -- nothing lost

    def _ends(self, token: int) -> list[Run]:
        return [run for run in self._of.get(token, []) if run.finish == "end"]

    def _lost(self, report: Report) -> None:
        lost = [ask for ask in self._asks if ask.created and not self._ends(ask.token) and ask.job_id not in self._dead]
        report.lost = len(lost)
        report.find("lost", [f"{ask} runs={self._of.get(ask.token, [])}" for ask in lost])

    # -- nothing too often without a reason

    def _extra(self, report: Report) -> None:
        ended, again = Counter[str](), Counter[str]()
        wrong_ends, wrong_runs = [], []
        for runs in self._of.values():
            used = Counter[int]()
            last_end = max((run.fence for run in runs if run.finish == "end"), default=0)
            for run in runs:
                if run.next_s is None:
                    continue
                if run.finish == "failed":
                    again["failed by decision"] += 1
                    continue
                cause = self._cause(run, used)
                again[cause] += 1
                if run.finish == "end" and run.fence < last_end:
                    ended[cause] += 1
                    if cause == "unexplained":
                        wrong_ends.append(self._story(run))
                elif cause == "unexplained":
                    wrong_runs.append(self._story(run))
        report.ended_again, report.run_again = dict(ended), dict(again)
        report.find("ended again without a reason", wrong_ends)
        report.find("delivered again without a reason", wrong_runs)

    def _cause(self, run: Run, used: Counter[int]) -> str:
        """What excuses that this run was not the last of its job; `used` counts the excuses of each fault so far."""
        for number, fault in enumerate(self._faults):
            most = 1 + int((fault.end_s - fault.begin_s) / LEASE_S)
            if used[number] < most and self._hit(fault, run):
                used[number] += 1
                return fault.kind
        return "unexplained"

    @staticmethod
    def _hit(fault: Fault, run: Run) -> bool:
        assert run.next_s is not None
        hit = fault.kind.endswith("server") or fault.pid in (run.pid, run.supervisor)
        return hit and fault.begin_s <= run.next_s and fault.end_s + SLACK_S >= run.start_s

    def _story(self, run: Run) -> str:
        """All deliveries of a job, and the faults around them, in seconds from its first start."""
        runs = self._of[run.token]
        zero = min(r.start_s for r in runs)
        told = [
            f"[fence {r.fence} pid {r.pid}<{r.supervisor} attempt {r.attempt} start {r.start_s - zero:.3f} "
            f"{r.finish or 'interrupted'} {r.finish_s - zero if r.finish else 0:.3f}]"
            for r in runs
        ]
        near = [
            f"{f.kind} {f.pid} {f.begin_s - zero:.3f}..{f.end_s - zero:.3f}"
            for f in self._faults
            if f.pid and f.begin_s - 5 < (run.next_s or 0) and f.end_s + 5 > run.start_s
        ]
        return f"job {run.job_id} fence {run.fence}: {' '.join(told)}; faults near: {', '.join(near)}"

    # -- how fast

    def _recovery(self, kind: str) -> dict[str, float]:
        """From a kill to the next start of what it interrupted."""
        times = []
        for fault in self._faults:
            if fault.kind != kind:
                continue
            for run in self._runs:
                mine = fault.pid in (run.pid, run.supervisor) and run.start_s <= fault.begin_s
                finished = run.finish in ("end", "failed", "cancelled") and run.finish_s <= fault.begin_s
                if mine and not finished and run.next_s is not None and run.next_s > fault.begin_s:
                    times.append(run.next_s - fault.begin_s)
        return summary(times)


def summary(times: list[float]) -> dict[str, Any]:
    if not times:
        return {}
    times = sorted(times)

    def at(share: float) -> float:
        return round(times[min(len(times) - 1, int(share * len(times)))], 3)

    return {"count": len(times), "p50_s": at(0.5), "p99_s": at(0.99), "max_s": round(times[-1], 3)}
