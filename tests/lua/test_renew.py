"""renew: running -> running. Leases that are held end later."""

from __future__ import annotations

import pytest

from tests.support.floor import LEASE_MS, Floor

pytestmark = pytest.mark.anyio


async def test_held_leases_end_later(floor: Floor) -> None:
    # Tries to shift the ends of leases that were not named, or to count from the old end instead of from now.
    a, b, c = await floor.running("a", "b", "c")
    floor.clock.advance(3)
    assert await floor.call("renew", floor.now, 7_000, a.member, c.member) == [2]
    ends = dict(await floor.client.zrange(floor.keys["leases"], 0, -1, withscores=True))
    assert {job.id: ends[job.member.encode()] - floor.now for job in (a, b, c)} == {
        "a": 7_000,
        "b": LEASE_MS - 3_000,
        "c": 7_000,
    }
    after = await floor.picture()
    assert await floor.call("renew", floor.now, 7_000, a.member, c.member) == [2], "sent twice it answers the same"
    assert await floor.picture() == after


async def test_lost_leases_are_named_and_stay_lost(floor: Floor) -> None:
    # Tries to revive a lease: of an ended run, of another fence, of a job that never was.
    a, b = await floor.running("a", "b")
    await floor.end("complete", [b])
    before = await floor.picture()
    forged = a.member.replace(str(a.fence), str(a.fence - 1))
    assert await floor.call("renew", floor.now, LEASE_MS, b.member, a.member, forged, "x#1@w1", "") == [
        1,
        0,
        2,
        3,
        4,
    ]
    assert await floor.picture() == before
    assert await floor.store.renew(0, LEASE_MS, [forged, a.member]) == [0]


async def test_an_empty_store_holds_no_lease(floor: Floor) -> None:
    # Tries to create a lease out of nothing.
    assert await floor.call("renew", floor.now, LEASE_MS, "a#1@w1") == [0, 0]
    assert not await floor.client.exists(floor.keys["leases"])


async def test_a_lease_past_its_end_can_be_renewed_until_it_is_taken(floor: Floor) -> None:
    # Tries to stop a run that nobody else has been given yet.
    (job,) = await floor.running("a")
    floor.clock.advance(LEASE_MS)
    assert await floor.store.renew(0, LEASE_MS, [job.member]) == []
    assert await floor.store.recover(0, 10) == (0, 0, LEASE_MS)


async def test_a_cancelled_job_tells_its_worker(floor: Floor) -> None:
    # Tries to keep the worker of a cancelled job running for ever.
    (job,) = await floor.running("a")
    await floor.store.cancel(0, "a", job.member, 1_000)
    assert await floor.store.renew(0, LEASE_MS, [job.member]) == [0]
