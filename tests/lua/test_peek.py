"""peek: the schedules whose time has come. Changes nothing."""

from __future__ import annotations

import pytest

from redisched.plan import Standing
from redisched.store.plans import Seen
from tests.support.floor import MINUTE_MS, PLAN, Floor

pytestmark = pytest.mark.anyio


async def test_nothing_is_due(floor: Floor) -> None:
    # Tries to name a schedule before its time, or to write.
    assert await floor.store.peek(0, 10) == (floor.now, -1, [])
    await floor.plan(cursor=floor.now + 5, look=floor.now + 5)
    before = await floor.picture()
    assert await floor.store.peek(0, 10) == (floor.now, 5, [])
    assert await floor.picture() == before


async def test_what_is_due_comes_with_what_is_needed(floor: Floor) -> None:
    # Tries to mix up states and bodies, to hide what is due this very ms, or to change what it shows.
    for n, name in enumerate(["acme/c", "acme/a", "acme/b", "acme/later"]):
        await floor.plan(name, cursor=floor.now + n, look=floor.now + n, body=f"body of {name}")
    floor.clock.advance(0.002)
    before = await floor.picture()
    now, next_ms, seen = await floor.store.peek(0, 10)
    assert await floor.picture() == before
    assert (now, next_ms) == (floor.now, 1)
    assert [one.name for one in seen] == [b"acme/c", b"acme/a", b"acme/b"], "the oldest first"
    for n, one in enumerate(seen):
        assert one.body == b"body of " + one.name
        assert Standing.parse(one.state).cursor_ms == one.look_ms == floor.now - 2 + n


async def test_the_limit_bounds_a_look(floor: Floor) -> None:
    # Tries to sleep although more are due than the limit let through.
    await floor.plan("acme/a", "acme/b", "acme/c")
    _, next_ms, seen = await floor.store.peek(0, 2)
    assert (next_ms, len(seen)) == (0, 2)
    _, next_ms, seen = await floor.store.peek(0, 4)
    assert (next_ms, len(seen)) == (-1, 3)


async def test_a_backfill_comes_with_its_schedules_body(floor: Floor) -> None:
    # Tries to look for a backfill's own body, or to hide it because its schedule is paused.
    await floor.plan(mode="p")
    await floor.call("backfill", floor.now, 0, PLAN, 1, 2, 2)
    _, _, seen = await floor.store.peek(0, 10)
    assert seen == [
        Seen(f"{PLAN}!".encode(), floor.now, await floor.client.hget(floor.keys["planned"], f"{PLAN}!"), b"\xffbody")
    ]


@pytest.mark.parametrize("missing", ["plan", "planned"])
async def test_half_a_schedule_is_shown_as_such(floor: Floor, missing: str) -> None:
    # Tries to shift the rows by one that is missing: its neighbours must stay whole.
    await floor.plan("acme/a", "acme/b", "acme/c")
    await floor.client.hdel(floor.keys[missing], "acme/b")
    _, _, seen = await floor.store.peek(0, 10)
    assert [one.name for one in seen] == [b"acme/a", b"acme/b", b"acme/c"]
    assert (seen[1].body == b"", seen[1].state == b"") == (missing == "plan", missing == "planned")
    assert all(one.body and one.state for one in (seen[0], seen[2]))
    await floor.store.unschedule(0, floor.caller, "acme/b")


async def test_a_large_look(floor: Floor) -> None:
    # Tries to pass more values than Lua can unpack.
    await floor.plan(*(f"acme/s{n}" for n in range(500)), look=floor.now - MINUTE_MS)
    _, next_ms, seen = await floor.store.peek(0, 500)
    assert (next_ms, len(seen)) == (0, 500)
