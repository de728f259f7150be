"""The history of schedules (`lua/lib/history.lua`): runs are noted, bounded, and their ends wake who waits."""

from __future__ import annotations

from typing import Any

import pytest

from redisched.model import Outcome
from redisched.plan import Mode
from tests.lua.test_servers import full, real_servers
from tests.support.floor import ENDS, LEASE_MS, MADE, MINUTE_MS, PLAN, SKIPPED, WAITS, Floor, run_of

pytestmark = pytest.mark.anyio
every_end = pytest.mark.parametrize("how", ENDS)
OUTCOME = {
    "complete": Outcome.DONE,
    "bury": Outcome.FAILED,
    "cancel": Outcome.CANCELLED,
    "recover": Outcome.LOST,
    "release": Outcome.LOST,
}


async def entries(floor: Floor) -> list[Any]:
    found: list[Any] = await floor.client.xrange(floor.keys.history(PLAN))
    return found


@every_end
async def test_an_end_is_noted_and_wakes_who_waits(floor: Floor, how: str) -> None:
    # Tries to lose a run, to note it twice, or to leave a held schedule asleep for a minute.
    await floor.plan()
    job = await floor.run_occurrence(max_attempts=1)
    assert await floor.fire(overlap="q") == WAITS
    await floor.client.delete(floor.keys["alarm"])
    await floor.finish(how, job)
    assert await floor.history() == [(job.id.partition("@")[2], OUTCOME[how])]
    ((entry, _),) = await entries(floor)
    assert int(entry.partition(b"-")[0]) == floor.now, "dated by the time that decides"
    assert ((await floor.standing()).mode, await floor.look()) == (Mode.HELD, 0)
    assert await floor.client.llen(floor.keys["alarm"]) == 1
    assert await floor.fire(overlap="q", at_ms=floor.now) == MADE


async def test_a_run_that_was_not_the_last_wakes_nobody(floor: Floor) -> None:
    # Tries to take a retry, or a lost run that is tried again, for an end.
    await floor.plan()
    job = await floor.run_occurrence()
    assert await floor.fire(overlap="q") == WAITS
    assert await floor.end("retry", [job]) == [1]
    floor.clock.advance(1)
    await floor.promote()
    assert len(await floor.claim()) == 1
    floor.clock.advance(LEASE_MS / 1000)
    assert await floor.store.recover(0, 10) == (1, 0, -1)
    assert [outcome for _, outcome in await floor.history()] == [Outcome.FAILED, Outcome.LOST]
    assert await floor.look() == MINUTE_MS - LEASE_MS - 1_000
    assert await floor.fire(overlap="q") == WAITS


async def test_what_was_left_out_is_there(floor: Floor) -> None:
    # Tries to hide that an occurrence was never made.
    await floor.plan()
    first = floor.now
    await floor.fire()
    assert await floor.fire() == SKIPPED
    assert await floor.history() == [(str(first + MINUTE_MS), Outcome.SKIPPED)]


async def test_given_back_unstarted_is_no_run(floor: Floor) -> None:
    # Tries to note a run that never began.
    await floor.plan()
    assert await floor.end("release", [await floor.run_occurrence()]) == [1]
    assert await floor.history() == []


@pytest.mark.parametrize("ended", [False, True])
async def test_a_stale_run_is_noted_once(floor: Floor, ended: bool) -> None:
    # Tries to note it twice when it is sent twice, also when its job has gone since.
    await floor.plan()
    job = await floor.run_occurrence()
    if ended:
        await floor.end("complete", [job])
    late = run_of(1, Outcome.STALE)
    for _ in range(2):
        await floor.store.stale(0, [job.id, late, job.id, late])
    assert [o for _, o in await floor.history()] == [Outcome.DONE] * ended + [Outcome.STALE]


async def test_a_late_end_is_not_noted_as_one(floor: Floor) -> None:
    # Tries to note the outcome of a worker whose lease was lost, or to wake somebody by it.
    await floor.plan()
    job = await floor.run_occurrence()
    floor.clock.advance(LEASE_MS / 1000)
    await floor.store.recover(0, 10)
    assert await floor.fire(overlap="q") == WAITS
    before = await floor.history()
    for verb in ("complete", "retry", "bury", "release"):
        assert await floor.end(verb, [job]) == [0, 0]
    assert (await floor.history(), await floor.look()) == (before, MINUTE_MS)


async def test_the_size_of_a_result_is_there(floor: Floor) -> None:
    # Tries to give a result's size, or a run, to the wrong job of a batch.
    await floor.plan()
    await floor.enqueue("plain")
    await floor.fire()
    jobs = await floor.claim()
    args = floor.end_args("complete", jobs, 0, 1)
    n = [job.id for job in jobs].index(f"{PLAN}@{floor.now}")
    done = run_of(1, Outcome.DONE, "")
    assert await floor.call("complete", *args, 1 - n, 1_000, b"plain's", n, done, 17) == [2]
    ((_, fields),) = await entries(floor)
    assert fields == {b"o": str(floor.now).encode(), b"r": done, b"s": b"17"}


async def test_it_is_bounded_by_count(floor: Floor) -> None:
    # Tries to grow a history for ever.
    await floor.plan(kept=3)
    for n in range(5):
        await floor.end("complete", [await floor.run_occurrence(at_ms=floor.now)])
        assert len(await floor.history()) == min(n + 1, 3)


async def test_it_is_bounded_by_age(floor: Floor) -> None:
    # Tries to keep runs past their time, or a history whose schedule no longer runs.
    await floor.plan(keep_ms=MINUTE_MS)
    first = floor.now
    for _ in range(4):
        await floor.end("complete", [await floor.run_occurrence(at_ms=floor.now)])
        assert 0 < await floor.client.pttl(floor.keys.history(PLAN)) <= MINUTE_MS
        floor.clock.advance(40)
    assert [int(entry.partition(b"-")[0]) - first for entry, _ in await entries(floor)] == [80_000, 120_000]


async def test_a_clock_that_went_back_loses_no_run(floor: Floor) -> None:
    # Tries to fail at an end, or to lose its run, because a failover's clock is behind.
    await floor.plan()
    await floor.fire(overlap="a")
    await floor.fire(overlap="a", at_ms=floor.now)
    first, second = await floor.claim()
    done = run_of(1, Outcome.DONE, "")
    for now, job in ((floor.now, first), (floor.now - MINUTE_MS, second)):
        args = floor.end_args("complete", [job], 0)[1:]
        assert await floor.call("complete", now, *args, 0, done, 0) == [1]
    assert [outcome for _, outcome in await floor.history()] == [Outcome.DONE] * 2


async def test_a_job_of_no_schedule_is_not_noted(floor: Floor) -> None:
    # Tries to write a history, or to fail, for plain jobs and for ids that only look like occurrences.
    await floor.plan()
    jobs = await floor.running("plain", "nightly@1", "acme/other@1", "@", max_attempts=1)
    assert await floor.end("bury", jobs) == [4]
    assert not [key for key in await floor.picture() if ":history:" in key]


@real_servers
async def test_a_full_server_notes_what_ends(floor: Floor) -> None:
    # Tries to lock a full server up: the end of an occurrence must get through by every way, with its run.
    for how in ENDS:
        await floor.plan(f"acme/{how}")
        job = await floor.run_occurrence(f"acme/{how}", max_attempts=1)
        async with full(floor):
            await floor.finish(how, job)
        assert [outcome for _, outcome in await floor.history(f"acme/{how}")] == [OUTCOME[how]]


async def test_a_run_that_was_cancelled_stands_once_and_names_its_worker(floor: Floor) -> None:
    # Tries to fill the history with two entries a run, to lose its start, or to take the id for the worker.
    await floor.plan()
    job = await floor.run_occurrence(overlap="c")
    assert await floor.fire(overlap="c") == MADE
    ((_, fields),) = await entries(floor)
    assert fields[b"r"].split(b" ")[1] == b"w1"
    late = run_of(1, Outcome.STALE, "")
    for _ in range(2):
        await floor.store.stale(0, [job.id, late])
        ((_, fields),) = await entries(floor)
        assert fields[b"r"] == late.replace(b" stale ", b" cancelled ")
