"""heal: puts schedules right, if they are still as they were seen."""

from __future__ import annotations

import pytest

from redisched.errors import StoreFull
from tests.lua.test_servers import full, real_servers
from tests.support.floor import MADE, MINUTE_MS, PLAN, Floor

pytestmark = pytest.mark.anyio


async def state_of(floor: Floor) -> bytes:
    found: bytes = await floor.client.hget(floor.keys["planned"], PLAN) or b""
    return found


async def test_a_schedule_that_nobody_looks_at(floor: Floor) -> None:
    # Tries to leave it asleep, to change its state, or to let the schedulers sleep past it.
    await floor.plan()
    await floor.client.zrem(floor.keys["plans"], PLAN)
    await floor.client.zrem(floor.keys["roster"], PLAN)
    await floor.client.delete(floor.keys["alarm"])
    state = await state_of(floor)
    assert await floor.store.heal(0, [PLAN, state, "=", floor.now]) == 1
    assert (await state_of(floor), await floor.look()) == (state, 0)
    assert await floor.client.llen(floor.keys["alarm"]) == 1
    assert (await floor.totals())["healed"] == 1
    assert await floor.fire() == MADE


@pytest.mark.parametrize("seen", ["", "broken"])
async def test_a_state_that_is_missing_or_broken(floor: Floor, seen: str) -> None:
    # Tries to keep a schedule without a readable state.
    await floor.plan()
    await floor.client.hdel(floor.keys["planned"], PLAN)
    if seen:
        await floor.client.hset(floor.keys["planned"], PLAN, seen)
    good = f"1 {floor.now + MINUTE_MS} - 0 0 0 0 100 1000 -"
    assert await floor.store.heal(0, [PLAN, seen, good, floor.now + MINUTE_MS]) == 1
    assert (await state_of(floor), await floor.look()) == (good.encode(), MINUTE_MS)


async def test_only_what_is_still_as_it_was_seen(floor: Floor) -> None:
    # Tries to set a schedule back that fired, was changed, paused or deleted since the sweep saw it.
    await floor.plan()
    seen = await state_of(floor)
    wrong = [PLAN, seen, "1 5 - 0 0 0 0 100 1000 -", 5]
    await floor.fire()
    before = await floor.picture()
    assert await floor.store.heal(0, wrong) == 0
    assert await floor.store.heal(0, [PLAN, "", *wrong[2:]]) == 0, "it has a state"
    assert await floor.picture() == before
    await floor.store.unschedule(0, floor.caller, PLAN)
    before = await floor.picture()
    assert await floor.store.heal(0, wrong) == 0
    assert await floor.store.heal(0, [PLAN, "", *wrong[2:]]) == 0, "without a body nothing comes back"
    assert await floor.picture() == before


async def test_one_that_has_ended_is_not_looked_at(floor: Floor) -> None:
    # Tries to leave an ended schedule among the enabled ones.
    await floor.plan()
    assert await floor.store.heal(0, [PLAN, await state_of(floor), "1 0 e 0 0 0 0 100 1000 -", 0]) == 1
    assert await floor.look() is None


async def test_a_batch_is_judged_one_by_one(floor: Floor) -> None:
    # Tries to let one that moved on stop its neighbours.
    names = [f"acme/s{n:03}" for n in range(500)]
    await floor.plan(*names)
    state = await floor.client.hget(floor.keys["planned"], names[0])
    await floor.fire(names[7])
    look = floor.now + 5
    assert await floor.store.heal(0, [word for name in names for word in (name, state, "=", look)]) == 499
    assert (await floor.look(names[7]), await floor.look(names[499])) == (MINUTE_MS, 5)


@real_servers
async def test_a_full_server_refuses_and_changes_nothing(floor: Floor) -> None:
    # Tries to heal by half.
    await floor.plan()
    before = await floor.picture()
    async with full(floor):
        with pytest.raises(StoreFull):
            await floor.store.heal(0, [PLAN, await state_of(floor), "1 5 - 0 0 0 0 100 1000 -", 5])
        assert await floor.picture() == before
