"""Schedules with real workers on real servers: declared in code, overlapping, killed in the middle."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from redisched import Every, Misfire, Outcome, Overlap, Plan, Scheduler, State
from tests.support import app
from tests.support.host import Effects, Host, until

pytestmark = pytest.mark.anyio
SECOND = timedelta(seconds=1)


async def has_run(plan: Plan, outcome: Outcome, times: int = 1) -> bool:
    return sum(run.outcome is outcome for run in await plan.runs(100)) >= times


async def end(plan: Plan, sched: Scheduler) -> None:
    """No more of it is made, and what lives is ended: the checks that follow need quiet."""
    living = (await plan.view()).living
    await plan.delete()
    for job_id in living:
        await sched.get_job(job_id, plan.tenant).cancel()


async def test_what_the_code_declares_is_put_in_place_and_fires(sched: Scheduler, start: Callable[..., Host]) -> None:
    # The whole way: a decorator, a worker's start, ticks, runs, history; and nothing again at the next start.
    host = start(app="tests.support.scheduled_app:sched")
    plan = sched.get_plan("beat", tenant="heart")
    await until(lambda: _exists(sched), "the schedule is there")
    await until(lambda: has_run(plan, Outcome.DONE, 3), "it has run three times")
    runs = await plan.runs(100)
    nominal = [run.nominal_at for run in reversed(runs)]
    assert all(b - a == timedelta(milliseconds=300) for a, b in itertools.pairwise(nominal) if a and b)
    assert all(run.job_id.startswith("heart/beat@") and run.result_bytes == 5 for run in runs)
    version = (await plan.view()).version
    host.signal(signal.SIGTERM)
    await host.wait()
    again = start(app="tests.support.scheduled_app:sched")
    await until(lambda: "worker started" in again.log, "the next host runs")
    assert (await plan.view()).version == version
    await plan.delete()
    again.signal(signal.SIGTERM)
    await again.wait()


async def _exists(sched: Scheduler) -> bool:
    return bool(await sched.plans("heart"))


async def test_cancel_replaces_the_running_one(sched: Scheduler, start: Callable[..., Host], effects: Effects) -> None:
    # The handler must feel it, the history must say it, and the old run's end must change nothing.
    start("--lease", "2")
    call, rule = app.sleep(60), Every(timedelta(seconds=1.5))
    plan = await sched.schedule("long", call, rule, tenant="acme", overlap=Overlap.CANCEL)
    await until(lambda: _at_least(effects, "cancelled", 2), "two handlers were cancelled")
    assert await has_run(plan, Outcome.CANCELLED, 2)
    started = [line[2] for line in await effects.lines("start")]
    assert len(set(started)) == len(started) >= 3, "each run is another occurrence"
    await end(plan, sched)


async def _at_least(effects: Effects, what: str, count: int) -> bool:
    return await effects.count(what) >= count


async def test_a_killed_run_holds_its_place_until_it_ends(
    sched: Scheduler, start: Callable[..., Host], effects: Effects
) -> None:
    # kill -9 in the middle: the occurrence is run again, others are skipped meanwhile, and its place is free after it.
    host = start("--processes", "1")
    plan = await sched.schedule("steady", app.sleep(1.2), Every(timedelta(milliseconds=400)), overlap=Overlap.SKIP)
    await until(lambda: _at_least(effects, "start", 1), "the first one runs")
    for pid in host.children():
        os.kill(pid, signal.SIGKILL)
    await until(lambda: _at_least(effects, "end", 3), "three have ended")
    runs = await plan.runs(100)
    assert any(run.outcome is Outcome.LOST for run in runs)
    assert any(run.outcome is Outcome.SKIPPED for run in runs)
    busy = sorted((r.started_at, r.ended_at) for r in runs if r.outcome is Outcome.DONE and r.started_at)
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(busy)), "never two at once"
    await end(plan, sched)
    await until(lambda: _is_quiet(sched), "nothing runs")


async def _is_quiet(sched: Scheduler) -> bool:
    stats = await sched.stats()
    return stats.total("running") + stats.total("ready") + stats.total("waiting") == 0


async def test_deleting_and_pausing_drop_nothing_that_runs(
    sched: Scheduler, start: Callable[..., Host], effects: Effects
) -> None:
    # The run ends as if nothing had happened.
    start()
    plan = await sched.schedule("once", app.sleep(1.0), Every(timedelta(hours=1)))
    first, second = await plan.trigger(), await plan.trigger()
    await until(lambda: _at_least(effects, "start", 2), "both run")
    await plan.pause(note="maintenance")
    assert (await plan.view()).note == "maintenance"
    assert await first.result(timeout=10) == "slept"
    assert await plan.delete()
    assert await second.result(timeout=10) == "slept"
    assert await second.status() is State.GONE


async def test_a_backfill_goes_on_without_its_caller(sched: Scheduler, start: Callable[..., Host]) -> None:
    # Made by the scheduler, one after the other, also when nobody waits for it.
    start()
    plan = await sched.schedule(
        "past", app.add(1, 2), Every(timedelta(hours=1), anchor=datetime(2026, 1, 1, tzinfo=UTC))
    )
    day = datetime(2026, 1, 2, tzinfo=UTC)
    backfill = await plan.backfill(day, day + timedelta(hours=2))
    assert backfill.total == 3
    await backfill.wait(timeout=20)
    await until(lambda: has_run(plan, Outcome.DONE, 3), "all have run")
    assert sorted(run.nominal_at for run in await plan.runs() if run.nominal_at) == [
        day + timedelta(hours=n) for n in range(3)
    ]
    await plan.delete()


async def test_missed_while_no_scheduler_ran(sched: Scheduler, start: Callable[..., Host]) -> None:
    # Longer than the tolerance without any scheduler: one for all of them, then the rhythm again.
    plan = await sched.schedule("late", app.add(1, 2), Every(SECOND), misfire=Misfire.RUN_ONCE)
    await until(lambda: _is_late(plan), "it is missed", timeout_s=30)
    start()
    await until(lambda: has_run(plan, Outcome.DONE, 3), "it goes on")
    view = await plan.view()
    assert view.missed >= 10
    nominal = sorted(run.nominal_at for run in await plan.runs(100) if run.nominal_at)
    assert nominal[0] - (view.created_at or nominal[0]) > 10 * SECOND
    await end(plan, sched)
    await until(lambda: _is_quiet(sched), "nothing runs")


async def _is_late(plan: Plan) -> bool:
    next_at = (await plan.view()).next_at
    return next_at is not None and datetime.now(UTC) - next_at > 12 * SECOND
