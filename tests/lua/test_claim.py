"""claim: ready -> running, by deficit round robin over tenants and by head starts over priorities."""

from __future__ import annotations

import pytest

from tests.support.floor import LEASE_MS, Floor, record_of, short_lanes

pytestmark = pytest.mark.anyio

T = 1_700_000_000_000  # an instant of lane entries that are made by hand


async def fill(floor: Floor, **counts: int) -> None:
    for tenant, count in counts.items():
        await floor.enqueue(*(f"{tenant}{n}" for n in range(count)), tenant=tenant)


async def test_an_empty_store_gives_nothing(floor: Floor) -> None:
    # Tries to write something, a fence for example, where there is nothing to give.
    before = await floor.picture()
    assert await floor.call("claim", floor.now, 10, LEASE_MS, "w1") == [0, 0]
    assert await floor.picture() == before


async def test_a_claim_gives_the_record_and_a_lease(floor: Floor) -> None:
    # Tries to hand out a job without a lease to it, or with a lease of another length or name.
    await floor.enqueue("a", "b")
    left, fence, *pairs = await floor.call("claim", floor.now, 10, 1_234, "host-1")
    assert (left, pairs) == (0, [b"a", record_of("acme"), b"b", record_of("acme")])
    assert await floor.client.zrange(floor.keys["leases"], 0, -1, withscores=True) == [
        (f"a#{fence}@host-1".encode(), floor.now + 1_234),
        (f"b#{fence + 1}@host-1".encode(), floor.now + 1_234),
    ]
    assert not await floor.client.exists(floor.keys.lane("acme"), floor.keys["ring"], floor.keys["ringed"])
    assert await floor.claim() == [], "asked again there is nothing more"


async def test_fences_grow_with_each_delivery(floor: Floor) -> None:
    # Tries to give out a token twice or a smaller one later, also after the key was lost in a failover.
    await fill(floor, a=6)
    fences = [job.fence for job in await floor.claim(3)]
    await floor.client.delete(floor.keys["fence"])
    floor.clock.advance(0.001)
    fences += [job.fence for job in await floor.claim(2)]
    fences += [job.fence for job in await floor.claim(1)]
    assert fences == sorted(set(fences))
    assert int(await floor.client.get(floor.keys["fence"])) == fences[-1]


async def test_tenants_take_turns(floor: Floor) -> None:
    # Tries to serve one tenant's backlog before another's first job.
    await fill(floor, a=5, b=5, c=5)
    assert await floor.claim_ids(3) == ["a0", "b0", "c0"]
    assert await floor.claim_ids(2) == ["a1", "b1"]
    assert await floor.claim_ids(2) == ["c1", "a2"]
    assert await floor.claim_ids(7) == ["b2", "b3", "b4", "c2", "c3", "c4", "a3"], "a share of the limit, rounded up"
    assert await floor.claim_ids(7) == ["a4"]


async def test_what_the_limit_cuts_off_is_owed(floor: Floor) -> None:
    # Tries to give the tenant at the end of every claim less than the others, claim after claim.
    await fill(floor, a=40, b=40, c=40)
    served = dict.fromkeys("abc", 0)
    for _ in range(6):
        claimed = await floor.claim_ids(10)
        assert len(claimed) >= 8
        for job_id in claimed:
            served[job_id[0]] += 1
        assert max(served.values()) - min(served.values()) <= 4, f"one share apart at the most: {served}"


@pytest.mark.parametrize("crowd", [1_000])
async def test_one_job_is_not_behind_a_thousand(floor: Floor, crowd: int) -> None:
    # Tries to hide a small tenant behind a large one.
    await fill(floor, a=crowd, b=1)
    claimed = await floor.claim_ids(10)
    assert "b0" in claimed
    assert claimed == ["a0", "a1", "a2", "a3", "a4", "b0"]
    left, _, *_ = await floor.call("claim", floor.now, 10, LEASE_MS, "w1")
    assert left == 1


async def test_more_tenants_than_the_limit_come_round(floor: Floor) -> None:
    # Tries to forget the tenants behind the limit.
    await fill(floor, **{f"t{n:02}x": 2 for n in range(20)})
    claimed = [tenant for _ in range(5) for tenant in await floor.claim_ids(8)]
    assert claimed == [f"t{n:02}x{turn}" for turn in (0, 1) for n in range(20)]


async def test_a_tenant_that_the_limit_cuts_short_stays_first(floor: Floor) -> None:
    # Tries to lose what a tenant is owed: it is first next time, and gets the rest before others get a share.
    await fill(floor, a=20, b=20)
    await floor.client.hset(floor.keys["ringed"], "a", "n 7")
    assert await floor.claim_ids(5) == ["a0", "a1", "a2", "a3", "a4"]
    assert await floor.client.hget(floor.keys["ringed"], "a") == b"n 2"
    assert await floor.client.lrange(floor.keys["ring"], 0, -1) == [b"a", b"b"]
    await floor.enqueue("a-high", tenant="a", priority="high")
    assert await floor.client.hget(floor.keys["ringed"], "a") == b"nh 2", "new work does not wipe the debt"
    assert await floor.claim_ids(8) == ["a-high", "a5", "b0", "b1", "b2", "b3"]
    assert await floor.client.hget(floor.keys["ringed"], "a") == b"n 0"
    assert await floor.client.lrange(floor.keys["ring"], 0, -1) == [b"a", b"b"]


@pytest.mark.parametrize(
    ("entries", "order"),
    [
        ({"low": 0, "normal": 0, "high": 0}, ["high", "normal", "low"]),
        ({"low": -59_999, "normal": 0}, ["normal", "low"]),
        ({"low": -60_000, "normal": 0}, ["normal", "low"]),
        ({"low": -60_001, "normal": 0}, ["low", "normal"]),
        ({"normal": -60_001, "high": 0}, ["normal", "high"]),
        ({"normal": -59_999, "high": 0}, ["high", "normal"]),
        ({"low": -119_999, "high": 0}, ["high", "low"]),
        ({"low": -120_001, "high": 0}, ["low", "high"]),
        ({"low": -120_002, "normal": -60_001, "high": 0}, ["low", "normal", "high"]),
    ],
)
async def test_a_priority_is_a_head_start(floor: Floor, entries: dict[str, int], order: list[str]) -> None:
    # Tries to starve low work for ever, or to pass work that is older than the head start.
    for priority, ms in entries.items():
        await floor.put_ready(priority, f"{T + ms}-0", priority=priority)
    one_by_one = [job_id for _ in order for job_id in await floor.claim_ids(1)]
    assert one_by_one == order


async def test_priorities_mix_in_one_claim(floor: Floor) -> None:
    # Tries to take the first of each lane instead of the first of all.
    for n, ms in enumerate((0, 50_000, 100_000)):
        await floor.put_ready(f"n{n}", f"{T + ms}-{n}")
        await floor.put_ready(f"h{n}", f"{T + 30_000 + ms}-{n}", priority="high")
    assert await floor.claim_ids(4) == ["h0", "n0", "h1", "n1"]
    assert await floor.claim_ids(4) == ["h2", "n2"]


async def test_a_low_job_of_one_tenant_is_no_lower_for_others(floor: Floor) -> None:
    # Tries to let priorities reach across tenants: they order a tenant's own work only.
    await floor.enqueue("a0", "a1", tenant="a", priority="low")
    await floor.enqueue("b0", "b1", tenant="b", priority="high")
    assert await floor.claim_ids(2) == ["a0", "b0"]


@pytest.mark.parametrize("limits", [(2, 2, 2, 2), (3, 3, 3), (4, 4), (1,) * 7, (7,), (8,)])
@short_lanes
async def test_the_overflow_follows_its_lane(floor: Floor, limits: tuple[int, ...]) -> None:
    # Tries to lose, double or reorder jobs where a claim crosses from the lane into the overflow.
    ids = [f"a{n}" for n in range(7)]
    await floor.enqueue(*ids)
    await floor.promote()
    assert [await floor.client.xlen(floor.keys.lane("acme")), await floor.where("a3")] == [3, "overflow"]
    assert [job_id for limit in limits for job_id in await floor.claim_ids(limit)] == ids
    assert not await floor.client.exists(floor.keys["ring"], floor.keys["ringed"], floor.keys.overflow("acme"))


@short_lanes
async def test_overflows_of_two_priorities(floor: Floor) -> None:
    # Tries to read the score of an overflow as something else than a time: also 0, the oldest there is.
    for priority in ("normal", "low"):
        await floor.enqueue(*(f"{priority}{n}" for n in range(3)), priority=priority)
        await floor.enqueue(f"{priority}3", when="0", priority=priority)
        await floor.promote()
        assert await floor.where(f"{priority}3") == "overflow"
    claimed = [job_id for limit in (1, 2, 2, 1, 2) for job_id in await floor.claim_ids(limit)]
    assert claimed == [f"{priority}{n}" for priority in ("normal", "low") for n in range(4)]


@pytest.mark.parametrize("record", [None, "d acme 1 5 9-9 0\n", "", "garbage", "q", "q acme"])
async def test_an_entry_without_a_living_record_is_dropped(floor: Floor, record: str | None) -> None:
    # Tries to stop a lane, or to skew the tally, by an entry whose record is missing, dead or no record.
    await floor.enqueue("a", "ghost", "b")
    await floor.enqueue("c", tenant="other")
    await floor.set_record("ghost", record)
    assert await floor.claim_ids() == ["a", "b", "c"]
    assert await floor.client.hgetall(floor.keys["tally"]) == {b"r acme": b"2", b"r other": b"1"}
    await floor.set_record("ghost", None)


async def test_only_ghosts(floor: Floor) -> None:
    # Tries to give out a lease, or a fence, for nothing.
    await floor.enqueue("ghost")
    await floor.set_record("ghost", None)
    left, _, *pairs = await floor.call("claim", floor.now, 10, LEASE_MS, "w1")
    assert (left, pairs) == (0, [])
    assert not await floor.client.exists(floor.keys["fence"], floor.keys["leases"], floor.keys["ring"])


async def test_a_ghost_beside_a_broken_record(floor: Floor) -> None:
    # Tries to make the script stumble over a header it cannot read after the leases stand.
    await floor.enqueue("ghost", "broken", "a")
    await floor.set_record("ghost", None)
    await floor.set_record("broken", "q")
    assert await floor.claim_ids() == ["a"]
    assert await floor.client.hgetall(floor.keys["tally"]) == {b"r acme": b"1"}
    await floor.set_record("broken", None)


async def test_a_tenant_of_the_ring_without_work_leaves_it(floor: Floor) -> None:
    # Tries to keep a tenant in the ring for ever: its jobs were cancelled, or its field is gone.
    await floor.enqueue("a", tenant="a")
    await floor.call("cancel", floor.now, "a", "", 1_000, 10)
    await floor.enqueue("b", tenant="b")
    await floor.client.rpush(floor.keys["ring"], "nobody")
    left, _, *pairs = await floor.call("claim", floor.now, 10, LEASE_MS, "w1")
    assert (left, pairs[::2]) == (0, [b"b"])
    assert not await floor.client.exists(floor.keys["ring"], floor.keys["ringed"])


async def test_who_leaves_work_behind_rings_for_the_next(floor: Floor) -> None:
    # Tries to leave work and sleeping workers side by side.
    await fill(floor, a=3)
    await floor.client.delete(floor.keys["bell"])
    await floor.claim(2)
    assert await floor.client.llen(floor.keys["bell"]) == 1
    await floor.claim(2)
    assert await floor.client.llen(floor.keys["bell"]) == 1, "nothing is left: nobody is rung"
