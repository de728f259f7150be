"""A schedule as text for a human: used by `redisched schedules`. Changes nothing."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from redisched.cli.common import iso, shown, span
from redisched.cli.jobs import call_text
from redisched.client import Scheduler
from redisched.cron import schedule_from_dict
from redisched.handles import last_line
from redisched.model import PlanRun, PlanView
from redisched.plan.body import local_time
from redisched.plans import Plan
from redisched.state import State

TIMES: Final = 5
MAX_RULE: Final = 60
MAX_ERROR: Final = 80
_LIVES: Final = (State.WAITING, State.READY, State.RUNNING)
_MISFIRE: Final = {
    "skip": "none of those missed are made",
    "once": "one for all that were missed, the newest",
    "all": "each of those missed, the newest {count}",
}
_OVERLAP: Final = {
    "skip": "one is left out while the one before it lives",
    "allow": "they run beside each other",
    "allow:": "up to {count} run beside each other, more are left out",
    "queue": "one waits for the end of the one before it, more are left out",
    "cancel": "one replaces the one before it, which is cancelled",
}


async def without_dead(sched: Scheduler, view: PlanView) -> PlanView:
    """The view, with only those of its occurrences that live at this moment."""
    living = [one for one in view.living if (await sched.inspector.job(one, view.tenant)).state in _LIVES]
    return dataclasses.replace(view, living=tuple(living))


async def next_times(plan: Plan, view: PlanView) -> list[datetime]:
    """Its next nominal times. One that counts from the end of its runs has no more than one that is known."""
    if counts_from_completion(view):
        return [view.next_at] if view.next_at is not None else []
    return await plan.preview(TIMES)


def counts_from_completion(view: PlanView) -> bool:
    return view.rule.get("after") == "completion"


def explain(view: PlanView, now: datetime, *, alive: bool) -> str:
    """Why it does not fire now, in a sentence."""
    if view.state == "broken":
        return f"it cannot be read, so it does not fire: {view.waits_for}; create it again, or delete it"
    if view.state == "paused":
        note = f": {view.note}" if view.note else ""
        return f"it is paused{note}; `redisched schedules resume` lets it go on"
    if view.state == "ended":
        return "it has no more times: its end has passed, or all its runs are made"
    nobody = "" if alive else "; no worker or scheduler is alive"
    if view.waits_for:
        return f"it waits: {view.waits_for}{nobody}"
    if view.next_at is None:
        return f"its next time is being computed{nobody}"
    wait_s = ((view.looks_at or view.next_at) - now).total_seconds()
    if wait_s >= 0:
        return f"it fires in {neat(wait_s)}{nobody}"
    return f"it is due for {neat(-wait_s)}{nobody}"


def describe(view: PlanView, why: str, times: Sequence[datetime]) -> list[str]:
    """A schedule for a human to read, but for its runs."""
    lines = [f"schedule   {view.name}", f"tenant     {shown(view.tenant)}", f"state      {view.state}"]
    lines.append(f"           {shown(why)}")
    if view.state == "broken":
        return lines
    lines += _facts_lines([("rule", view.words), ("", rule_in_short(view.rule))])
    lines += _facts_lines([("call", call_text(view.call, view.args))])
    lines += [f"{'' if n else 'next':<10} {line}" for n, line in enumerate(_time_lines(view, times))]
    policies: list[tuple[str, object]] = [
        ("misfire", _policy(view.misfire, _MISFIRE)),
        ("grace", f"{neat(view.grace.total_seconds())}: how old one that was missed may be"),
        ("overlap", _policy(view.overlap, _OVERLAP)),
        ("jitter", _jitter(view)),
        ("key", view.idempotency_key),
        ("priority", view.priority if view.priority != "normal" else None),
        ("counts", f"made {view.made:,}, missed {view.missed:,}, skipped {view.skipped:,}"),
    ]
    lines += _facts_lines(policies)
    lines += [f"{'' if n else 'living':<10} {shown(one)}" for n, one in enumerate(view.living)]
    lines += _facts_lines(
        [
            ("backfill", _backfill(view)),
            ("origin", f"{view.origin} declares it in code" if view.origin else "made by hand"),
            ("version", view.version),
            ("created", iso(view.created_at) if view.created_at else None),
            ("changed", iso(view.changed_at) if view.changed_at not in (None, view.created_at) else None),
        ]
    )
    return lines


def _facts_lines(facts: Sequence[tuple[str, object]]) -> list[str]:
    return [f"{name:<10} {shown(value)}" for name, value in facts if value is not None]


def _time_lines(view: PlanView, times: Sequence[datetime]) -> list[str]:
    """Each time as the clocks of the rule's zone show it, and in UTC."""
    if not times:
        return ["counted from the end of its run"] if counts_from_completion(view) and view.state != "ended" else []
    if view.rule.get("tz", "UTC") == "UTC":
        return [f"{at:%a} {iso(at)}" for at in times]
    rule = schedule_from_dict(view.rule)
    local = [local_time(rule, at) for at in times]
    return [f"{there:%a} {there.isoformat(sep=' ')}  {iso(at)}" for there, at in zip(local, times, strict=True)]


def _policy(policy: str, words: dict[str, str]) -> str:
    kind, _, count = policy.partition(":")
    text = words.get(f"{kind}:" if count else kind) or words.get(kind) or "?"
    return f"{policy}: {text.format(count=count)}"


def _jitter(view: PlanView) -> str | None:
    if not view.jitter:
        return None
    starts = f"; the next one starts at {iso(view.looks_at)}" if view.looks_at and view.state == "active" else ""
    return f"up to {neat(view.jitter.total_seconds())}{starts}"


def _backfill(view: PlanView) -> str | None:
    b = view.backfill
    if b is None:
        return None
    at = f", now at {iso(b.next_at)}" if b.next_at else ""
    return f"made {b.made:,} of {b.total:,}{at}, until {iso(b.until)}"


def run_rows(runs: Sequence[PlanRun]) -> list[tuple[object, ...]]:
    """For a table: nominal, outcome, attempt, started, duration, worker, result bytes, error."""
    return [
        (
            _nominal(run),
            run.outcome.value,
            run.attempt,
            iso(run.started_at) if run.started_at else "-",
            span(run.duration / timedelta(seconds=1)) if run.duration is not None else "-",
            run.worker,
            run.result_bytes,
            last_line(run.error)[:MAX_ERROR],
        )
        for run in runs
    ]


def _nominal(run: PlanRun) -> str:
    if "!" in run.job_id.rpartition("@")[2]:
        return "triggered"
    return iso(run.nominal_at) if run.nominal_at else "-"


def rule_in_short(rule: dict[str, Any]) -> str:
    """`0 9 * * 1 America/New_York`, `every 10 min`, `FREQ=DAILY UTC`."""
    kind = rule.get("kind")
    if kind == "every":
        after = " after completion" if rule.get("after") == "completion" else ""
        return f"every {neat(float(rule.get('interval', 0)))}{after}"
    words = str(rule.get("expr") or rule.get("rule") or "?")
    if len(words) > MAX_RULE:
        words = words[: MAX_RULE - 3] + "..."
    zone = rule.get("tz", "UTC")
    return words if zone == "UTC" else f"{words} {zone}"


def until(view: PlanView, now: datetime) -> tuple[str, str]:
    """`in 3 h` or `due for 4 min`, and the time itself. One that is paused has a next time, but does not fire then."""
    if view.next_at is None:
        return "-", "-"
    if view.state != "active":
        return "-", iso(view.next_at)
    wait_s = (view.next_at - now).total_seconds()
    return f"in {neat(wait_s)}" if wait_s > 0 else f"due for {neat(-wait_s)}", iso(view.next_at)


def neat(seconds: float) -> str:
    """A span without a part that is nothing: `10 min`, `3 h`."""
    return re.sub(r" 0 (h|min|s)$|(?<=\d)\.0(?= s$)", "", span(seconds)) if seconds else "0 s"
