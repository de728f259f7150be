"""cancel: waiting, ready or running -> gone."""

from __future__ import annotations

import pytest

from tests.support.floor import LEASE_MS, Floor, short_lanes

pytestmark = pytest.mark.anyio
KEEP_MS = 60_000


async def cancel(floor: Floor, job_id: str, lease: str = "") -> str:
    return await floor.store.cancel(floor.shard, job_id, lease, KEEP_MS)


async def put(floor: Floor, place: str, priority: str) -> str:
    """Job "a" into a place, among others; its lease, if it has one."""
    if place == "waiting":
        await floor.enqueue("x", "a", "y", when="+5", priority=priority)
    elif place == "running":
        return (await floor.running("x", "a", "y", priority=priority))[1].member
    else:
        others = ("x", "y") if place == "ready" else ("x", "y", "z")
        await floor.enqueue(*others, "a", "zz", priority=priority)
        await floor.promote()
    assert await floor.where("a") == place
    return ""


@pytest.mark.parametrize("place", ["waiting", "ready", "overflow", "running"])
@pytest.mark.parametrize("priority", ["high", "normal", "low"])
@short_lanes
async def test_a_job_is_cancelled_wherever_it_is(floor: Floor, place: str, priority: str) -> None:
    # Tries to leave a job in a second place, or to take one of its neighbours with it.
    lease = await put(floor, place, priority)
    others = set(await floor.client.hkeys(floor.keys["jobs"])) - {b"a"}
    assert await cancel(floor, "a", lease) == "cancelled"
    assert set(await floor.client.hkeys(floor.keys["jobs"])) == others
    assert await floor.store.locate(0, "a") == ("kept", b"c", b"")
    assert 0 < await floor.client.pttl(floor.keys.result("a")) <= KEEP_MS
    assert (await floor.totals())["cancelled"] == 1
    after = await floor.picture()
    assert await cancel(floor, "a", lease) == "again", "a repetition says that it was done before"
    assert await floor.picture() == after
    floor.clock.advance(1)
    await floor.promote()
    assert b"a" not in {job.id.encode() for job in await floor.claim()}


async def test_what_is_gone_cannot_be_cancelled(floor: Floor) -> None:
    # Tries to "cancel" what never was, what finished, or what finished with a result.
    assert await cancel(floor, "never") == "gone"
    jobs = await floor.running("a", "b")
    await floor.call("complete", *floor.end_args("complete", jobs, 0, 1), 1, 60_000, b"result")
    before = await floor.picture()
    assert [await cancel(floor, job.id, job.member) for job in jobs] == ["gone", "gone"]
    assert await floor.picture() == before


async def test_a_dead_letter_cannot_be_cancelled(floor: Floor) -> None:
    # Tries to remove a letter the wrong way, with its entry left behind.
    (job,) = await floor.dead("a")
    before = await floor.picture()
    assert [await cancel(floor, "a"), await cancel(floor, "a", job.member)] == ["dead", "dead"]
    assert await floor.picture() == before


async def test_a_running_job_needs_the_lease_it_has_now(floor: Floor) -> None:
    # Tries to cancel a run by the lease of an earlier one: the record would go under the new worker.
    (old,) = await floor.running("a")
    floor.clock.advance(LEASE_MS / 1000)
    await floor.store.recover(0, 10)
    await floor.promote()
    (new,) = await floor.claim(worker="w2")
    before = await floor.picture()
    assert [await cancel(floor, "a", lease) for lease in ("", old.member, "a#1@w2")] == ["moved"] * 3
    assert await floor.picture() == before
    assert await cancel(floor, "a", new.member) == "cancelled"


async def test_a_job_that_waits_again_is_cancelled_whatever_lease_was_seen(floor: Floor) -> None:
    # Tries to miss a job that went back between the look and the cancel.
    (old,) = await floor.running("a")
    await floor.end("retry", [old])
    assert await cancel(floor, "a", old.member) == "cancelled"


async def test_the_last_job_of_a_lane_takes_the_lane_along(floor: Floor) -> None:
    # Tries to leave an empty stream, or a tenant that is never woken again.
    await floor.enqueue("a", "b")
    assert [await cancel(floor, "a"), await cancel(floor, "b")] == ["cancelled", "cancelled"]
    assert not await floor.client.exists(floor.keys.lane("acme"))
    assert await floor.claim_ids() == []
    assert not await floor.client.exists(floor.keys["ring"], floor.keys["ringed"])


async def test_a_lane_emptied_by_cancels_serves_again(floor: Floor) -> None:
    # Tries to lose new work in a lane that is marked but was deleted.
    await floor.enqueue("a")
    await cancel(floor, "a")
    await floor.enqueue("c")
    assert await floor.claim_ids() == ["c"]
    assert await floor.claim_ids() == []
    assert not await floor.client.exists(floor.keys["ring"], floor.keys["ringed"])


@short_lanes
async def test_the_last_job_of_an_overflow(floor: Floor) -> None:
    # Tries to keep a lane closed, or its order broken, by an overflow that was emptied by cancels.
    await floor.enqueue("a", "b", "c", "over")
    await floor.promote()
    assert await cancel(floor, "over") == "cancelled"
    await floor.enqueue("d")
    await floor.promote()
    assert await floor.claim_ids(2) == ["a", "b"]
    await floor.enqueue("e")
    await floor.promote()
    assert [await floor.claim_ids(2), await floor.claim_ids(2)] == [["c", "d"], ["e"]]
    assert await floor.claim_ids() == []
    assert not await floor.client.exists(floor.keys["ring"])


async def test_a_cancelled_key_can_be_used_again(floor: Floor) -> None:
    # Tries to hold a key, or to answer for the new job with the end of the old one.
    await floor.enqueue("a", when="+5")
    await cancel(floor, "a")
    assert await floor.enqueue("a", when="+9") == [1]
    assert await floor.where("a") == "waiting"
    assert await cancel(floor, "a") == "cancelled"


async def test_a_job_past_the_look_is_not_lost(floor: Floor) -> None:
    # Tries to remove the record of a job that the bounded look through its lane did not find.
    await floor.enqueue("a", "b", "c")
    assert await floor.call("cancel", floor.now, "c", "", KEEP_MS, 2) == [b"moved"]
    assert await floor.claim_ids() == ["a", "b", "c"]


async def test_a_record_that_is_in_no_place(floor: Floor) -> None:
    # Tries to take a leftover for a job and lose what a human could still repair.
    await floor.set_record("a", "q acme 0 5 0 0\n")
    assert await cancel(floor, "a") == "moved"
    floor.expect("job a is in no place")


@pytest.mark.parametrize("record", ["", "garbage", "q acme"])
async def test_a_record_that_cannot_be_read(floor: Floor, record: str) -> None:
    # Tries to make the script stumble after a write: rubbish is refused, and stays for a human to see.
    await floor.enqueue("a", when="+5")
    await floor.set_record("a", record)
    before = await floor.picture()
    assert await cancel(floor, "a") == "unreadable"
    assert await floor.picture() == before
    floor.expect("job a: no record", "holds a, whose record")


async def test_remembering_for_no_time(floor: Floor) -> None:
    # Tries to break the script in the middle: to keep something for 0 ms is an error of the server.
    await floor.enqueue("a", when="+5")
    assert await floor.call("cancel", floor.now, "a", "", 0, 10) == [b"cancelled"]
    assert await floor.where("a") in ("kept", "gone"), "for a millisecond, perhaps"
