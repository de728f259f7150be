"""promote: waiting -> ready, or to the overflow of a full lane."""

from __future__ import annotations

import pytest

from tests.support.floor import Floor, parcel, short_lanes

pytestmark = pytest.mark.anyio


async def test_an_empty_store_has_nothing_to_promote(floor: Floor) -> None:
    # Tries to write something where there is nothing to do.
    before = await floor.picture()
    assert await floor.promote() == (0, -1)
    assert await floor.picture() == before


async def test_it_says_how_long_to_sleep(floor: Floor) -> None:
    # Tries to promote early by a millisecond, or to sleep past a job.
    await floor.enqueue("a", when="+250")
    before = await floor.picture()
    assert await floor.promote() == (0, 250)
    floor.clock.advance(0.249)
    assert await floor.promote() == (0, 1)
    assert await floor.picture() == before
    floor.clock.advance(0.001)
    assert await floor.promote() == (1, 0)
    assert await floor.where("a") == "ready"
    assert await floor.promote() == (0, -1), "the same call again moves nothing"


async def test_a_time_between_two_milliseconds_is_not_slept_away(floor: Floor) -> None:
    # Tries to answer 0 ms, a busy loop, for a score that is no whole number.
    await floor.enqueue("a", when=f"{floor.now}.5")
    assert await floor.promote() == (0, 1)


async def test_the_limit_bounds_a_call_and_the_oldest_go_first(floor: Floor) -> None:
    # Tries to move more than asked for, or younger work before older.
    for n in (5, 3, 1, 4, 2):
        await floor.enqueue(f"j{n}", when=f"+{n}")
    floor.clock.advance(1)
    assert await floor.promote(2) == (2, 0)
    assert list(await floor.due()) == ["j3", "j4", "j5"]
    assert await floor.promote(2) == (2, 0)
    assert await floor.promote(2) == (1, 0)
    assert await floor.promote(2) == (0, -1)
    assert await floor.claim_ids() == ["j1", "j2", "j3", "j4", "j5"]


async def test_jobs_of_one_instant_keep_the_order_of_their_ids(floor: Floor) -> None:
    # Tries to shuffle what one process enqueued for the same millisecond.
    ids = [f"id{n:03}" for n in range(50)]
    await floor.enqueue(*ids, when="+10")
    floor.clock.advance(1)
    await floor.promote(20)
    await floor.promote(30)
    assert await floor.claim_ids() == ids


async def test_lanes_and_ring_of_many_tenants(floor: Floor) -> None:
    # Tries to put a tenant into the ring twice: by two of its lanes, or because it was there already.
    fresh = []
    for tenant in ("a", "b", "c"):
        for priority in ("low", "normal", "high"):
            fresh += parcel(f"{tenant}-{priority}", tenant, priority, "+5")
    await floor.enqueue("b-before", tenant="b")
    assert await floor.call("enqueue", floor.now, 0, 2_000, *fresh) == [9]
    floor.clock.advance(1)
    assert await floor.promote() == (9, 0)
    assert sorted(await floor.client.lrange(floor.keys["ring"], 0, -1)) == [b"a", b"b", b"c"]
    ringed = await floor.client.hgetall(floor.keys["ringed"])
    assert all(set(state.decode()) == set("hnl 0") for state in ringed.values())
    claimed = await floor.claim_ids()
    assert len(claimed) == 10
    assert [i for i in claimed if i.startswith("c")] == ["c-high", "c-normal", "c-low"]


async def test_tenants_join_the_ring_in_the_order_of_their_oldest_job(floor: Floor) -> None:
    # Tries to let chance decide whose turn it is: the table of lanes has no order of its own.
    tenants = [f"t{n * 7919 % 10_007}" for n in range(30)]
    for n, tenant in enumerate(tenants):
        await floor.enqueue(f"j{n}", tenant=tenant, when=f"+{n + 1}")
    floor.clock.advance(1)
    await floor.promote()
    assert [t.decode() for t in await floor.client.lrange(floor.keys["ring"], 0, -1)] == tenants


@short_lanes
async def test_past_the_bound_jobs_go_to_the_overflow(floor: Floor) -> None:
    # Tries to grow a lane past its bound, to lose the times of what moves aside, or to hide another tenant.
    for n in range(1, 8):
        await floor.enqueue(f"a{n}", when=f"+{n}")
    await floor.enqueue("b1", tenant="b", when="+100")
    floor.clock.advance(1)
    assert await floor.promote() == (8, 0)
    assert await floor.client.xlen(floor.keys.lane("acme")) == 3
    spilled = await floor.client.zrange(floor.keys.overflow("acme"), 0, -1, withscores=True)
    assert [(member, at + 1_000 - floor.now) for member, at in spilled] == [
        (f"acme/a{n}".encode(), n) for n in range(4, 8)
    ]
    assert await floor.where("b1") == "ready"
    assert await floor.client.hgetall(floor.keys["tally"]) == {}


@short_lanes
async def test_the_overflow_stays_in_order_over_many_calls(floor: Floor) -> None:
    # Tries to overtake the overflow through a lane that has room again.
    ids = [f"a{n:02}" for n in range(1, 13)]
    for n, job_id in enumerate(ids):
        await floor.enqueue(job_id, when=f"+{n + 1}")
    floor.clock.advance(1)
    claimed = []
    for limit in (4, 3, 5, 1, 1, 1):
        await floor.promote(limit)
        claimed += await floor.claim_ids(2)
    claimed += await floor.claim_ids()
    assert claimed == ids


async def test_a_member_without_a_record_does_not_stop_the_rest(floor: Floor) -> None:
    # Tries to stop a shard with a leftover of a foreign hand.
    await floor.client.zadd(floor.keys["due"], {"acme/ghost": 1})
    await floor.client.hset(floor.keys["tally"], "w acme", 1)
    await floor.enqueue("a", when="+1")
    floor.clock.advance(1)
    assert await floor.promote() == (2, 0)
    assert await floor.claim_ids() == ["a"]


async def test_a_member_that_is_no_job_does_not_stop_the_rest(floor: Floor) -> None:
    # Tries to stop a shard for ever with something in `due` that no enqueue put there.
    await floor.client.zadd(floor.keys["due"], {"rubbish": 1})
    await floor.enqueue("a", when="+1")
    floor.clock.advance(1)
    assert await floor.promote() == (2, 0)
    assert await floor.claim_ids() == ["a"]
    assert not await floor.client.exists(floor.keys["due"], floor.keys["ring"], floor.keys.lane("rubbish"))
    floor.expect("tally 'w rubbish' is -1, counted 0")


async def test_a_bell_rings_for_workers_and_stops_at_a_bound(floor: Floor) -> None:
    # Tries to leave workers asleep, or to fill a list that nobody empties.
    for n in range(20):
        await floor.enqueue(f"a{n}", when="+1")
        await floor.client.delete(floor.keys["alarm"])
    floor.clock.advance(1)
    for n in range(20):
        assert await floor.promote(1) == (1, 0)
        assert await floor.client.llen(floor.keys["bell"]) == min(n + 1, 16)
