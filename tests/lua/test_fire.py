"""fire: nothing -> waiting or ready. Who is woken by an end is in `test_history.py`."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from redisched.errors import StoreFull
from redisched.model import Outcome
from redisched.plan import Mode
from tests.lua.test_servers import full, real_servers
from tests.support.floor import (
    ENDS,
    MADE,
    MINUTE_MS,
    MOVED,
    PACE,
    PASSED,
    PLAN,
    SKIPPED,
    TURN,
    WAITS,
    Floor,
    record_of,
    short_lanes,
)

pytestmark = pytest.mark.anyio
every_end = pytest.mark.parametrize("how", ENDS)


async def test_an_occurrence_and_the_next_time_in_one_step(floor: Floor) -> None:
    # Tries to make one without moving on, to move on without making one, or to lose sight of the schedule.
    await floor.plan()
    first = floor.now
    assert await floor.fire(missed=3) == MADE
    assert str(await floor.standing()) == f"1 {first + MINUTE_MS} - 1 3 0 0 100 86400000 {first}"
    assert await floor.look() == MINUTE_MS
    (job,) = await floor.claim()
    assert (job.id, job.record) == (f"{PLAN}@{first}", record_of("acme"))
    assert await floor.totals() == {"scheduled": 1, "fired": 1, "missed": 3}


@pytest.mark.parametrize(
    ("plan", "job_id"),
    [("default/n", "n@"), ("defaul/n", "defaul/n@"), ("default2/n", "default2/n@"), ("!a1/n", "!a1/n@")],
)
async def test_ids_name_the_occurrence(floor: Floor, plan: str, job_id: str) -> None:
    # Tries to give occurrences of two tenants the same id, or the end of one to another's history.
    await floor.plan(plan)
    job = await floor.run_occurrence(plan)
    assert job.id == f"{job_id}{floor.now}"
    assert await floor.end("complete", [job]) == [1]
    assert await floor.history(plan) == [(str(floor.now), Outcome.DONE)]


async def test_two_schedulers_make_one(floor: Floor) -> None:
    # Tries to make an occurrence twice: both saw the schedule at the same cursor.
    await floor.plan()
    step = await floor.step(overlap="a")
    assert await floor.fire_steps(step, step) == [MADE, MOVED], "in one call"
    after = await floor.picture()
    assert await floor.fire_steps(step) == [MOVED]
    assert await floor.picture() == after
    step = await floor.step(overlap="a")
    answers = await asyncio.gather(*(floor.store.fire(0, floor.new_caller(), PACE, step) for _ in range(10)))
    assert sorted(answers) == [[MOVED]] * 9 + [[MADE]]
    assert len(await floor.claim()) == 1, "the second waits for its time"


@pytest.mark.parametrize("kind_of_step", ["f", "l", "p", "c"])
@pytest.mark.parametrize("meanwhile", ["changed", "paused", "ended", "broken", "version", "cursor", "words"])
async def test_a_schedule_that_moved_is_left_alone(floor: Floor, kind_of_step: str, meanwhile: str) -> None:
    # Tries to fire from where the schedule no longer is: somebody changed, paused, ended or broke it meanwhile.
    await floor.plan()
    step = await floor.step(kind=kind_of_step)
    if meanwhile in ("changed", "paused", "ended"):
        await floor.plan(seen=1, mode={"changed": "-", "paused": "p", "ended": "e"}[meanwhile], cursor="=")
    elif meanwhile == "broken":
        await floor.client.hset(floor.keys["planned"], PLAN, "1 2 3")
        floor.expect("no state", "plans holds")
    elif meanwhile == "words":
        step[3] = step[3] + " more"
    else:
        other: dict[str, Any] = {"version": 2} if meanwhile == "version" else {"cursor_ms": 1}
        step = await floor.step(kind=kind_of_step, **other)
    before = await floor.picture()
    assert await floor.fire_steps(step) == [MOVED]
    assert await floor.picture() == before


async def test_one_that_is_not_enabled_is_no_longer_looked_at(floor: Floor) -> None:
    # Tries to look at a paused schedule again and again, because a foreign hand put it among the enabled.
    await floor.plan(mode="p")
    await floor.client.zadd(floor.keys["plans"], {PLAN: 1})
    assert (await floor.fire(), await floor.look()) == (MOVED, None)


async def test_an_occurrence_of_later_waits(floor: Floor) -> None:
    # Tries to run an occurrence before its share of the jitter.
    await floor.plan()
    assert await floor.fire(at_ms=floor.now + 5) == MADE
    assert await floor.due() == {f"{PLAN}@{floor.now}": 5}


@short_lanes
async def test_a_full_lane_is_respected(floor: Floor) -> None:
    # Tries to put more into a lane than it may hold, or past what waits for it.
    await floor.enqueue("a", "b", "c")
    await floor.plan()
    assert await floor.fire() == MADE
    assert await floor.client.xlen(floor.keys.lane("acme")) == 3
    await floor.claim(3)
    await floor.promote()
    assert await floor.claim_ids() == [f"{PLAN}@{floor.now}"]


@pytest.mark.parametrize(("step", "next_ms"), [("l", None), ("f", 0), ("p", 0)])
async def test_the_last_one_ends_it(floor: Floor, step: str, next_ms: int | None) -> None:
    # Tries to look at an ended schedule for ever, to make one more, or to remove it with its history.
    await floor.plan()
    parts: dict[str, Any] = {} if next_ms is None else {"next_ms": next_ms}
    assert await floor.fire(kind=step, **parts) == (PASSED if step == "p" else MADE)
    standing = await floor.standing()
    assert (standing.mode, standing.cursor_ms, await floor.look()) == (Mode.ENDED, 0, None)
    assert await floor.fire() == MOVED


async def test_the_last_one_ends_it_only_if_it_is_made(floor: Floor) -> None:
    # Tries to end a schedule with one run less than its budget: an overlap left the last one out.
    await floor.plan()
    await floor.fire()
    assert await floor.fire(kind="l") == SKIPPED
    assert ((await floor.standing()).mode, await floor.look()) == (Mode.ACTIVE, 2 * MINUTE_MS)


@every_end
async def test_it_may_count_from_the_end_of_its_run(floor: Floor, how: str) -> None:
    # Tries to go on before the run ends, to count from its start, or to sleep past its end.
    await floor.plan()
    job = await floor.run_occurrence(next_ms=-1, max_attempts=1)
    standing = await floor.standing()
    assert (standing.mode, standing.cursor_ms, await floor.look()) == (Mode.RUNNING, 0, MINUTE_MS)
    floor.clock.advance(5)
    assert await floor.fire(kind="c", next_ms=0) == PASSED
    assert await floor.look() == MINUTE_MS, "it lasts"
    await floor.client.delete(floor.keys["alarm"])
    await floor.finish(how, job)
    assert ((await floor.standing()).mode, await floor.look()) == (Mode.RUNNING, 0), "it is to be looked at now"
    assert await floor.client.llen(floor.keys["alarm"]) == 1
    assert await floor.fire(kind="c", next_ms=0) == PASSED
    standing = await floor.standing()
    assert (standing.mode, standing.cursor_ms, await floor.look()) == (Mode.RAN, floor.now, 0)
    assert await floor.fire(kind="p", next_ms=floor.now + 7) == PASSED
    assert ((await floor.standing()).mode, await floor.look()) == (Mode.ACTIVE, 7)


async def test_a_run_that_vanished_has_ended(floor: Floor) -> None:
    # Tries to wait for ever for the end of a run whose record a foreign hand removed; a retry is no end.
    await floor.plan()
    job = await floor.run_occurrence(next_ms=-1)
    assert await floor.end("retry", [job]) == [1]
    assert await floor.fire(kind="c", next_ms=0) == PASSED
    assert (await floor.standing()).mode is Mode.RUNNING
    await floor.store.cancel(0, job.id, "", 1_000)
    await floor.client.hset(floor.keys["planned"], PLAN, str(await floor.standing()).replace(" d ", " c "))
    assert await floor.fire(kind="c", next_ms=0) == PASSED
    standing = await floor.standing()
    assert (standing.mode, standing.cursor_ms, await floor.look()) == (Mode.RAN, floor.now, 0)


async def test_the_end_of_a_triggered_run_is_not_the_end_of_its_own(floor: Floor) -> None:
    # Tries to count from the end of a run that a human asked for, while the schedule's own still lasts.
    await floor.plan()
    await floor.run_occurrence(next_ms=-1)
    assert await floor.fire(kind="t", occurrence_ms=f"{floor.now}!x1") == MADE
    assert await floor.end("complete", await floor.claim()) == [1]
    assert (await floor.standing()).mode is Mode.RUNNING


@pytest.mark.parametrize("mode", ["-", "p", "e"])
async def test_a_trigger_makes_one_whatever_runs(floor: Floor, mode: str) -> None:
    # Tries to refuse a human: the schedule is paused or ended, or an occurrence lives. Its own times stay.
    await floor.plan()
    await floor.run_occurrence()
    await floor.plan(seen=1, mode=mode, cursor="=", look="=")
    before, look = await floor.standing(), await floor.look()
    occurrence = f"{floor.now}!x1"
    assert await floor.fire(kind="t", occurrence_ms=occurrence, version=99) == MADE
    assert await floor.claim_ids() == [f"{PLAN}@{occurrence}"]
    after = await floor.standing()
    assert (after.cursor_ms, after.mode, after.made) == (before.cursor_ms, before.mode, before.made)
    assert after.occurrences == (*before.occurrences, occurrence)
    assert await floor.look() == look


async def test_a_trigger_sent_twice_makes_one(floor: Floor) -> None:
    # Tries to make two, when the answer to the first call was lost and its job has gone meanwhile.
    await floor.plan(mode="p")
    step = await floor.step(kind="t", occurrence_ms=f"{floor.now}!x1")
    assert await floor.check_repeats("fire", [floor.now, 0, 10, *PACE, *step], 1) == [MADE]
    assert (await floor.totals())["fired"] == 1


async def test_a_triggered_one_counts_as_running(floor: Floor) -> None:
    # Tries to run the schedule's own occurrence beside one that a human asked for.
    await floor.plan()
    await floor.fire(kind="t", occurrence_ms=f"{floor.now}!x1")
    assert await floor.fire() == SKIPPED


async def test_a_dead_letter_of_the_same_occurrence_makes_room(floor: Floor) -> None:
    # Tries to leave two of them, a tally, or the old result behind; or to touch one that lives.
    await floor.plan()
    first = floor.now
    job = await floor.run_occurrence()
    await floor.end("bury", [job])
    await floor.client.set(floor.keys.result(job.id), "old", px=MINUTE_MS)
    await floor.plan(seen=1, cursor=first)
    again = await floor.run_occurrence(max_attempts=2)
    assert (again.id, again.record) == (job.id, record_of("acme", 2))
    assert await floor.client.xlen(floor.keys["dead"]) == 0
    assert not await floor.client.exists(floor.keys.result(job.id))
    await floor.plan(seen=2, cursor=first)
    assert await floor.fire(overlap="a") == MADE
    assert (await floor.where(job.id), await floor.record(job.id)) == ("running", again.record)
    assert (await floor.totals())["fired"] == 2


async def test_what_cannot_be_read_is_put_off(floor: Floor) -> None:
    # Tries to stop a shard by a schedule that is broken and always the first.
    await floor.plan(PLAN, "acme/b")
    broken, good = await floor.step(kind="x"), await floor.step("acme/b")
    await floor.client.hset(floor.keys["planned"], PLAN, "broken")
    assert await floor.fire_steps(broken, good) == [PASSED, MADE]
    assert (await floor.look(), await floor.look("acme/b")) == (MINUTE_MS, MINUTE_MS)
    await floor.store.unschedule(0, floor.caller, PLAN)


async def test_a_large_batch(floor: Floor) -> None:
    # Tries to pass more values than Lua can unpack: 500 schedules, and as many backfills.
    names = [f"t{n % 100}/s{n}" for n in range(500)]
    await floor.plan(*names)
    steps = [await floor.step(name, overlap="a") for name in names]
    assert await floor.fire_steps(*steps) == [MADE] * 500
    assert await floor.fire_steps(*steps) == [MOVED] * 500
    for name in names:
        await floor.store.backfill(0, floor.caller, name, 60_000, 60_000, 1)
    steps = [await floor.step(f"{n}!", overlap="a", catch_ms=1, next_ms=0, at_ms=floor.now) for n in names]
    answers = await floor.fire_steps(*steps)
    assert (answers.count(MADE), answers.count(TURN)) == (100, 400), "one for each tenant"
    assert len(await floor.claim(1_000)) == 600


@real_servers
@pytest.mark.parametrize("flushed", [False, True])
async def test_a_full_server_refuses_and_changes_nothing(floor: Floor, flushed: bool) -> None:
    # Tries to make an occurrence by half, or to move a schedule on without it; what ends must get through.
    await floor.plan(PLAN, "acme/b")
    job = await floor.run_occurrence()
    assert await floor.fire(overlap="q") == WAITS
    steps = [await floor.step("acme/b", kind=kind) for kind in ("f", "l", "p", "t", "x")]
    steps += [await floor.step(overlap=letter) for letter in "sqa"]
    before = await floor.picture()
    if flushed:
        await floor.client.script_flush()
    async with full(floor):
        for step in steps:
            with pytest.raises(StoreFull):
                await floor.fire_steps(step)
            assert await floor.picture() == before
        assert await floor.end("complete", [job], seq=1) == [1]
    assert (await floor.history(), await floor.look()) == ([(job.id.partition("@")[2], Outcome.DONE)], 0)
    assert await floor.fire(overlap="q") == MADE


# -- overlap


@every_end
async def test_skip_leaves_out_while_one_lives(floor: Floor, how: str) -> None:
    # Tries to run two at once while the first is ready, runs or waits for its retry, or to keep its place afterwards.
    await floor.plan()
    assert await floor.fire(max_attempts=2) == MADE
    assert await floor.fire() == SKIPPED, "ready"
    (job,) = await floor.claim()
    assert await floor.fire() == SKIPPED, "running"
    await floor.call("retry", floor.now, 0, job.member, job.id, 0, 1, 0, b"1 w1 1 2 failed 0\n")
    assert await floor.fire() == SKIPPED, "waits for its retry"
    await floor.promote()
    (job,) = await floor.claim()
    assert ((await floor.standing()).skipped, await floor.look()) == (3, 4 * MINUTE_MS)
    await floor.finish(how, job)
    assert await floor.fire(at_ms=floor.now) == MADE
    assert (await floor.totals())["overlapped"] == 3


@pytest.mark.parametrize("most", [1, 2, 64])
async def test_allow_counts_those_that_live(floor: Floor, most: int) -> None:
    # Tries to exceed the number that may live, or to count one that ended.
    await floor.plan()
    for _ in range(most):
        assert await floor.fire(overlap="a", most=most, at_ms=floor.now) == MADE
    assert await floor.fire(overlap="a", most=most) == SKIPPED
    jobs = await floor.claim()
    assert len(jobs) == most
    await floor.end("complete", jobs[:1])
    assert await floor.fire(overlap="a", most=most, at_ms=floor.now) == MADE
    assert await floor.fire(overlap="a", most=most) == SKIPPED


async def test_allow_without_a_number_keeps_a_short_list(floor: Floor) -> None:
    # Tries to let the state grow with every occurrence that lives.
    await floor.plan()
    for _ in range(100):
        assert await floor.fire(overlap="a") == MADE
    assert len((await floor.standing()).occurrences) == 8


async def test_queue_holds_one_and_counts_the_others_once(floor: Floor) -> None:
    # Tries to lose the one that waits, or to count those left out behind it at every look.
    await floor.plan()
    job = await floor.run_occurrence()
    cursor = (await floor.standing()).cursor_ms
    for n in range(1, 4):
        assert await floor.fire(overlap="q", skipped=n) == WAITS
        standing = await floor.standing()
        assert (standing.mode, standing.cursor_ms, await floor.look()) == (Mode.HELD, cursor, MINUTE_MS)
    await floor.end("complete", [job])
    assert await floor.fire(overlap="q", skipped=3, at_ms=floor.now) == MADE
    assert ((await floor.standing()).made, (await floor.standing()).skipped) == (2, 3)
    assert await floor.claim_ids() == [f"{PLAN}@{cursor}"]


@pytest.mark.parametrize("place", ["ready", "waiting", "running"])
async def test_cancel_replaces_the_one_before(floor: Floor, place: str) -> None:
    # Tries to run two at once, or to count the outcome of the one that was replaced.
    await floor.plan("acme/other", PLAN)
    await floor.fire("acme/other")
    assert await floor.fire(at_ms=floor.now + (5 if place == "waiting" else 0)) == MADE
    old = f"{PLAN}@{floor.now}"
    jobs = [job for job in await floor.claim() if job.id == old] if place == "running" else []
    assert await floor.where(old) == place
    assert await floor.fire(overlap="c", at_ms=floor.now) == MADE
    assert await floor.store.locate(0, old) == ("kept", b"c", b"")
    for job in jobs:
        assert await floor.end("complete", [job]) == [0, 0], "its worker comes too late"
    assert await floor.history() == [(old.partition("@")[2], Outcome.CANCELLED)]
    assert (await floor.standing()).live == str(floor.now + MINUTE_MS)
    assert await floor.where(f"acme/other@{floor.now}") == ("running" if jobs else "ready")


# -- pace


async def test_a_catch_up_takes_turns(floor: Floor) -> None:
    # Tries to make all that were missed at once, to wait twice for one turn, or to lose one meanwhile.
    await floor.plan(PLAN, "acme/b", "t/a")
    late: dict[str, Any] = {"catch_ms": 1, "overlap": "a"}
    assert await floor.fire(**late) == MADE
    assert await floor.fire(**late) == TURN
    assert await floor.fire("acme/b", **late) == TURN, "the tenant's schedules share its pace"
    assert await floor.fire("t/a", **late) == MADE, "another tenant has its own"
    assert await floor.fire("t/a", overlap="a") == MADE, "what is in time asks for no turn"
    assert [await floor.look(), await floor.look("acme/b")] == [1_000, 2_000]
    standing = await floor.standing()
    assert (standing.mode, standing.made, standing.catch_ms) == (Mode.TURN, 1, 1)
    floor.clock.advance(1)
    assert await floor.fire(**late) == MADE
    assert (await floor.fire(**late), await floor.look()) == (TURN, 2_000)
    floor.clock.advance(3_600)
    assert await floor.fire(**late) == MADE
    assert [await floor.fire(**late), await floor.fire(**late)] == [MADE, TURN], "turns are not saved up"
    assert (await floor.totals())["caught_up"] == 5


async def test_the_pace_follows_what_is_usual(floor: Floor) -> None:
    # Tries to pace a busy tenant like a small one, or to forget after one quiet hour what is usual.
    await floor.plan()
    for _ in range(10):
        assert await floor.fire(overlap="a") == MADE
    late: dict[str, Any] = {"catch_ms": 1, "overlap": "a", "pace": (2, 1)}
    for hour, usual in enumerate((10, 10, 9)):
        assert [await floor.fire(**late), await floor.fire(**late)] == [MADE, TURN]
        assert await floor.look() == 3_600_000 // (2 * usual), hour
        floor.clock.advance(3_600)
        assert await floor.fire(**late) == MADE


async def test_a_late_one_waits_for_the_one_before(floor: Floor) -> None:
    # Tries to leave out what was missed, because the first of a catch-up still runs; or to use a turn up for it.
    await floor.plan()
    await floor.run_occurrence(catch_ms=1)
    pace = await floor.client.hgetall(floor.keys["pace"])
    assert await floor.fire(catch_ms=1) == WAITS
    standing = await floor.standing()
    assert (standing.mode, standing.catch_ms, standing.skipped) == (Mode.HELD, 1, 0)
    assert await floor.client.hgetall(floor.keys["pace"]) == pace
