"""schedule: creates schedules or replaces them."""

from __future__ import annotations

import pytest

from redisched.errors import StoreFull
from redisched.plan import Mode
from tests.lua.test_servers import full, real_servers
from tests.support.floor import MADE, MINUTE_MS, PLAN, Floor

pytestmark = pytest.mark.anyio


async def test_a_new_schedule_is_in_all_its_places(floor: Floor) -> None:
    # Tries to leave out a place, to lose bytes of the body, or to let the schedulers sleep past it.
    assert await floor.plan(PLAN, cursor=floor.now + MINUTE_MS, look=floor.now + MINUTE_MS + 7, body=b"\0\n\xff") == [1]
    assert await floor.client.hget(floor.keys["plan"], PLAN) == b"\0\n\xff"
    standing = await floor.standing()
    assert str(standing) == f"1 {floor.now + MINUTE_MS} - 0 0 0 0 100 86400000 -"
    assert await floor.look() == MINUTE_MS + 7
    assert await floor.client.zrange(floor.keys["roster"], 0, -1, withscores=True) == [(PLAN.encode(), 0)]
    assert await floor.totals() == {"scheduled": 1}
    assert await floor.client.llen(floor.keys["alarm"]) == 1


@pytest.mark.parametrize(("seen", "answer"), [(0, -3), (1, -3), (3, -3), (2, 3)])
async def test_only_the_version_that_was_seen_is_replaced(floor: Floor, seen: int, answer: int) -> None:
    # Tries to overwrite somebody else's change, or to create what exists.
    await floor.plan(body=b"1")
    await floor.plan(seen=1, body=b"2")
    assert await floor.plan(seen=seen, body=b"3", mode="p") == [answer]
    assert await floor.client.hget(floor.keys["plan"], PLAN) == (b"3" if answer > 0 else b"2")
    assert (await floor.standing()).version == (3 if answer > 0 else 2)
    assert await floor.look() == (None if answer > 0 else 0)


async def test_what_was_deleted_is_not_replaced(floor: Floor) -> None:
    # Tries to bring a schedule back that somebody deleted meanwhile.
    await floor.plan()
    await floor.store.unschedule(0, floor.caller, PLAN)
    assert await floor.plan(seen=1) == [-1]
    assert not await floor.client.exists(floor.keys["plan"], floor.keys["planned"], floor.keys["plans"])


async def test_a_batch_is_judged_one_by_one(floor: Floor) -> None:
    # Tries to let one refusal stop its neighbours, or to create a schedule twice in one call.
    await floor.plan("acme/b")
    assert await floor.plan("acme/a", "acme/b", "acme/c", "acme/c") == [1, -2, 1, -2]
    assert await floor.client.zrange(floor.keys["roster"], 0, -1) == [b"acme/a", b"acme/b", b"acme/c"]


async def test_a_tenant_has_a_quota(floor: Floor) -> None:
    # Tries to exceed the quota, to count a neighbour's schedules, or to refuse a replacement at the quota.
    names = ["acme/a", "acme/b", "acme/c"]
    assert await floor.plan("acm/a", "acme-1/a", "acme0/a", quota=1) == [1, 1, 1], "each has its own"
    assert await floor.plan(*names, quota=2) == [1, 1, 0]
    assert await floor.plan("acme/b", seen=1, quota=2) == [2]
    assert await floor.plan("acme/c", quota=3, others=1) == [0], "the other shards count too"
    assert await floor.plan("acme/c", quota=4, others=1) == [1]
    assert await floor.plan("acme/d", quota=2) == [0], "a quota that was lowered"
    await floor.store.unschedule(0, floor.caller, "acme/a")
    assert await floor.plan("acme/d", quota=3) == [2], "one that went makes room"


async def test_a_broken_state_takes_no_room(floor: Floor) -> None:
    # Tries to refuse a new schedule beside one whose broken state is replaced in the same call.
    await floor.plan("acme/a")
    await floor.client.hset(floor.keys["planned"], "acme/a", "broken")
    assert await floor.plan("acme/a", "acme/b", quota=10) == [1, 1]


@pytest.mark.parametrize("state", ["", "broken", "1 2 - 0 0 0 0 100", "1 2 - 0 0 0 0 1 1 - "])
async def test_a_broken_state_can_be_replaced(floor: Floor, state: str) -> None:
    # Tries to make a schedule with a broken state unusable for ever.
    await floor.plan()
    await floor.client.hset(floor.keys["planned"], PLAN, state)
    assert await floor.plan(seen=1) == [-1]
    assert await floor.plan(seen=0, quota=1) == [1], "it has its place already"
    assert await floor.fire() == MADE


async def test_the_same_rule_goes_on_where_it_stands(floor: Floor) -> None:
    # Tries to lose counts, the living or the cursor when only the call or a policy changes.
    await floor.plan()
    await floor.run_occurrence(missed=2)
    before = await floor.standing()
    floor.clock.advance(1)
    assert await floor.plan(seen=1, mode="=", cursor="=", look="=", kept=7) == [2]
    after = await floor.standing()
    assert str(after) == str(before).replace("1 ", "2 ", 1).replace(" 100 ", " 7 ")
    assert (after.made, after.missed, after.occurrences) == (1, 2, (str(floor.now - 1_000),))
    assert await floor.look() == MINUTE_MS - 1_000


async def test_another_rule_begins_anew_but_knows_who_lives(floor: Floor) -> None:
    # Tries to charge the old rule's runs against the new one's budget, or to forget the one that still runs.
    await floor.plan()
    job = await floor.run_occurrence(missed=2)
    assert await floor.plan(seen=1, cursor=floor.now + 5, look=floor.now + 5) == [2]
    standing = await floor.standing()
    assert (standing.made, standing.missed, standing.catch_ms) == (0, 2, 0)
    assert job.id == f"{PLAN}@{standing.live}"


@pytest.mark.parametrize("mode", ["p", "e"])
async def test_who_is_not_enabled_is_not_looked_at(floor: Floor, mode: str) -> None:
    # Tries to fire a paused schedule, to lose its cursor, or to leave it asleep when it is resumed.
    await floor.plan()
    cursor = (await floor.standing()).cursor_ms
    floor.clock.advance(5)
    assert await floor.plan(seen=1, mode=mode, cursor="=") == [2]
    assert await floor.look() is None
    assert await floor.plan(seen=2, mode="=", cursor="=") == [3]
    assert ((await floor.standing()).mode, await floor.look()) == (Mode(mode), None)
    assert await floor.plan(seen=3, mode="-", cursor="=") == [4]
    assert ((await floor.standing()).cursor_ms, await floor.look()) == (cursor, 0)


async def test_sent_twice_it_counts_once(floor: Floor) -> None:
    # Tries to raise the version twice, or to answer "somebody changed it" to the one who did.
    await floor.plan("acme/b")
    assert await floor.check_repeats("schedule", floor.plan_args("acme/a", "acme/b", "acme/c"), 1) == [1, -2, 1]


async def test_what_was_refused_is_not_counted(floor: Floor) -> None:
    # Tries to count refusals as schedules.
    await floor.plan("acme/a")
    await floor.plan("acme/a", "acme/b", quota=1)
    assert await floor.totals() == {"scheduled": 1}


async def test_a_large_batch(floor: Floor) -> None:
    # Tries to pass more values than Lua can unpack.
    names = [f"acme/s{n:03}" for n in range(500)]
    assert await floor.plan(*names) == [1] * 500
    assert await floor.client.zcard(floor.keys["plans"]) == 500


@real_servers
async def test_a_full_server_refuses_and_stores_nothing(floor: Floor) -> None:
    # Tries to store a schedule by half on a server that is over its limit.
    await floor.plan("acme/b")
    before = await floor.picture()
    async with full(floor):
        for name, seen in (("acme/a", 0), ("acme/b", 1)):
            with pytest.raises(StoreFull):
                await floor.plan(name, "acme/c", seen=seen)
        assert await floor.picture() == before
    assert await floor.plan("acme/a", "acme/c") == [1, 1]


async def test_one_made_anew_is_another(floor: Floor) -> None:
    # Tries to replace, by a version seen long ago, a schedule that was deleted and made again by somebody else.
    assert await floor.plan() == [1]
    assert await floor.plan(seen=1) == [2]
    await floor.store.unschedule(0, floor.caller, PLAN)
    assert await floor.plan() == [3]
    for old in (1, 2):
        assert await floor.plan(seen=old) == [-4]


async def test_another_rule_ends_the_backfill_of_the_old_one(floor: Floor) -> None:
    # Tries to go on with times that another rule has counted; a pause leaves it alone.
    await floor.plan()
    await floor.call("backfill", floor.now, 0, PLAN, 1, 2, 2)
    assert await floor.plan(seen=1, mode="p", cursor="=") == [2]
    assert await floor.client.zscore(floor.keys["plans"], f"{PLAN}!") is not None
    assert await floor.plan(seen=2, cursor=floor.now + 5) == [3]
    assert await floor.client.hget(floor.keys["planned"], f"{PLAN}!") is None
    assert await floor.client.zscore(floor.keys["plans"], f"{PLAN}!") is None
