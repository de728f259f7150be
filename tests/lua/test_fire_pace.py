"""fire: who is late has a turn, also when several schedulers look at the same instant."""

from __future__ import annotations

import pytest

from redisched.plan import Mode
from tests.support.floor import MADE, MOVED, TURN, Floor

pytestmark = pytest.mark.anyio


async def test_two_schedulers_do_not_take_each_others_turns(floor: Floor) -> None:
    # Both peek the same late schedules; the second's steps must not make what the first put off.
    names = [f"acme/s{n}" for n in range(20)]
    await floor.plan(*names)
    steps = [await floor.step(name, catch_ms=floor.now) for name in names]
    first, second = await floor.fire_steps(*steps), await floor.fire_steps(*steps)
    assert (first.count(MADE), first.count(TURN)) == (1, 19)
    assert second == [MOVED] * 20
    assert (await floor.standing(names[-1])).mode is Mode.TURN
    floor.clock.advance(1)
    steps = [await floor.step(name, catch_ms=floor.now) for name in names[1:]]
    assert (await floor.fire_steps(*steps)).count(MADE) == 1, "only the one whose turn has come"


async def test_a_turn_that_has_come_is_taken_once(floor: Floor) -> None:
    # A turn is a right to one occurrence, whoever looks first.
    await floor.plan("acme/a", "acme/b")
    for name in ("acme/a", "acme/b"):
        await floor.fire(name, catch_ms=floor.now)
    floor.clock.advance(1)
    step = await floor.step("acme/b", catch_ms=floor.now)
    assert [await floor.fire_steps(step), await floor.fire_steps(step)] == [[MADE], [MOVED]]


async def test_a_trigger_waits_for_no_turn(floor: Floor) -> None:
    # A human asked for it.
    await floor.plan("acme/a", "acme/b")
    for name in ("acme/a", "acme/b"):
        await floor.fire(name, catch_ms=floor.now)
    assert await floor.fire("acme/b", kind="t", occurrence_ms="1!x", next_ms=0) == MADE
    assert (await floor.standing("acme/b")).mode is Mode.TURN
