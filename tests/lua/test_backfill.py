"""backfill: begins the making of a schedule's past occurrences, or ends it."""

from __future__ import annotations

from typing import Any

import pytest

from redisched.errors import StoreFull
from redisched.plan import Mode
from tests.lua.test_servers import full, real_servers
from tests.support.floor import MADE, MINUTE_MS, MOVED, PLAN, TURN, WAITS, Floor

pytestmark = pytest.mark.anyio
BACK = f"{PLAN}!"


async def begin(floor: Floor, first: int, last: int, count: int = 3) -> int:
    return await floor.store.backfill(0, floor.caller, PLAN, first, last, count)


async def make(floor: Floor, **parts: Any) -> int:
    """The next one, as `plan/steps.py` asks for it."""
    s = await floor.standing(BACK)
    following = s.cursor_ms + MINUTE_MS
    parts = {"next_ms": following if following <= s.range[0] else 0, "look_ms": floor.now, "at_ms": floor.now} | parts
    return await floor.fire(BACK, catch_ms=s.catch_ms, **parts)


async def test_it_stands_beside_its_schedule(floor: Floor) -> None:
    # Tries to move the schedule itself, to hand its counts on, or to let the schedulers sleep.
    await floor.plan(cursor=floor.now + MINUTE_MS, look=floor.now + MINUTE_MS)
    before = await floor.standing()
    await floor.client.delete(floor.keys["alarm"])
    assert await begin(floor, 60_000, 180_000) == 1
    assert await floor.standing() == before
    assert str(await floor.standing(BACK)) == f"1 60000 - 0 0 0 {floor.now} 100 86400000 180000/3"
    assert (await floor.look(BACK), await floor.look()) == (0, MINUTE_MS)
    assert await floor.client.llen(floor.keys["alarm"]) == 1
    assert await floor.client.zrange(floor.keys["roster"], 0, -1) == [PLAN.encode()]


async def test_one_at_a_time(floor: Floor) -> None:
    # Tries to begin a second one over the first, one of nothing, or to stop what is not under way.
    assert await begin(floor, 60_000, 180_000) == 0
    assert not await floor.client.exists(floor.keys["planned"], floor.keys["plans"])
    await floor.plan()
    assert await begin(floor, 0, 0, 0) == 0
    assert await begin(floor, 60_000, 180_000) == 1
    assert await begin(floor, 120_000, 180_000) == -1
    assert (await floor.standing(BACK)).cursor_ms == 60_000
    assert await begin(floor, 0, 0, 0) == 1
    assert await floor.look(BACK) is None
    assert await begin(floor, 120_000, 180_000) == 1


@pytest.mark.parametrize("first", [60_000, 0])
async def test_sent_twice_it_counts_once(floor: Floor, first: int) -> None:
    # Tries to answer "under way" to the one who began it, or "nothing there" to the one who stopped it.
    await floor.plan()
    if not first:
        await begin(floor, 60_000, 180_000)
    args = [floor.now, 0, PLAN, first, 180_000, 3]
    assert await floor.check_repeats("backfill", args, 1) == [1]


async def test_it_makes_its_occurrences_and_goes(floor: Floor) -> None:
    # Tries to count on the schedule, to move its cursor, to go past the end, or to stay when all are made.
    await floor.plan(mode="p")
    cursor = (await floor.standing()).cursor_ms
    await begin(floor, 60_000, 180_000)
    for nominal in (60_000, 120_000, 180_000):
        assert (await floor.standing(BACK)).cursor_ms == nominal
        assert await make(floor) == MADE
        (job,) = await floor.claim()
        assert job.id == f"{PLAN}@{nominal}"
        assert await floor.end("complete", [job]) == [1]
        floor.clock.advance(1)
    assert await floor.client.hkeys(floor.keys["planned"]) == [PLAN.encode()]
    assert not await floor.client.exists(floor.keys["plans"])
    standing = await floor.standing()
    assert (standing.cursor_ms, standing.made, standing.mode) == (cursor, 0, Mode.PAUSED)
    assert len(await floor.history()) == 3
    totals = await floor.totals()
    assert (totals["fired"], totals["caught_up"]) == (3, 3)


async def test_it_waits_for_the_schedules_own_and_is_woken(floor: Floor) -> None:
    # Tries to run a backfill beside the schedule's own occurrence, or to be held for ever.
    await floor.plan()
    own = await floor.run_occurrence()
    await begin(floor, 60_000, 120_000)
    assert await make(floor) == WAITS
    assert ((await floor.standing(BACK)).mode, await floor.look(BACK)) == (Mode.HELD, MINUTE_MS)
    await floor.client.delete(floor.keys["alarm"])
    await floor.end("complete", [own])
    assert await floor.look(BACK) == 0
    assert await floor.client.llen(floor.keys["alarm"]) == 1
    assert await make(floor) == MADE
    floor.clock.advance(1)
    assert await floor.fire(overlap="q") == WAITS, "and the other way round"
    await floor.end("complete", await floor.claim())
    assert await floor.look() == 0


async def test_it_takes_turns(floor: Floor) -> None:
    # Tries to flood the queue with a backfill.
    await floor.plan()
    await begin(floor, 60_000, 180_000)
    assert await make(floor, overlap="a") == MADE
    assert await make(floor, overlap="a") == TURN
    assert ((await floor.standing(BACK)).mode, await floor.look(BACK)) == (Mode.TURN, 1_000)


async def test_a_stopped_one_makes_no_more(floor: Floor) -> None:
    # Tries to make an occurrence of a backfill that was stopped between peek and fire, or to bring it back.
    await floor.plan()
    await begin(floor, 60_000, 180_000)
    step = await floor.step(BACK, catch_ms=floor.now)
    await begin(floor, 0, 0, 0)
    before = await floor.picture()
    assert await floor.fire_steps(step) == [MOVED]
    assert await floor.picture() == before


async def test_a_change_of_the_schedule_does_not_stop_it(floor: Floor) -> None:
    # Tries to strand a backfill by raising its schedule's version.
    await floor.plan()
    await begin(floor, 60_000, 180_000)
    await floor.plan(seen=1, mode="p", cursor="=")
    assert await make(floor) == MADE


async def test_both_in_one_call(floor: Floor) -> None:
    # Tries to lose what one of the two remembers, when both work on the same list of the living.
    await floor.plan()
    await begin(floor, 60_000, 180_000)
    own = await floor.step(overlap="a", most=2)
    back = await floor.step(BACK, catch_ms=floor.now, overlap="a", most=2, at_ms=floor.now)
    assert await floor.fire_steps(own, back) == [MADE, MADE]
    assert (await floor.standing()).occurrences == (str(floor.now), "60000")
    assert await floor.fire(overlap="a", most=2, catch_ms=1) == WAITS


async def test_one_that_lives_already_holds_one_place(floor: Floor) -> None:
    # Tries to count an occurrence twice that the schedule made and its backfill reached: one lives, two may.
    await floor.plan()
    first = floor.now
    await floor.run_occurrence(overlap="a", most=2)
    await begin(floor, first, first)
    assert await make(floor, overlap="a", most=2) == MADE
    floor.clock.advance(MINUTE_MS / 1000)
    assert await floor.fire(overlap="a", most=2) == MADE


@real_servers
async def test_a_full_server_refuses_and_stores_nothing(floor: Floor) -> None:
    # Tries to begin one by half; to stop one must always be possible.
    await floor.plan()
    before = await floor.picture()
    async with full(floor):
        with pytest.raises(StoreFull):
            await floor.call("backfill", floor.now, 0, PLAN, 60_000, 120_000, 2)
        assert await floor.picture() == before
    assert await begin(floor, 60_000, 120_000) == 1
    async with full(floor):
        assert await begin(floor, 0, 0, 0) == 1
