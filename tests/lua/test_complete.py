"""complete: running -> gone. See also `test_leases.py`."""

from __future__ import annotations

import pytest

from redisched.codec import encode_result
from tests.support.floor import LEASE_MS, Floor, record_of

pytestmark = pytest.mark.anyio


async def test_a_completed_job_is_gone(floor: Floor) -> None:
    # Tries to leave a trace of a finished job: record, lease, tally.
    jobs = await floor.running("a", "b")
    assert await floor.end("complete", jobs) == [2]
    assert await floor.where("a") == "gone"
    left = {key.removeprefix(floor.keys.tag) for key in await floor.picture() if key.startswith(floor.keys.tag)}
    assert left == {
        "totals",
        "fence",
        "bell",
        floor.keys.rate(floor.now // 60_000).removeprefix(floor.keys.tag),
    }
    assert await floor.totals() == {"enqueued": 2, "done": 2}


async def test_the_store_answers_who_was_stale(floor: Floor) -> None:
    # Tries to shift the lists of leases, ids and tenants against each other.
    jobs = await floor.running("a", "b", "c", tenant="t-1")
    members, ids = [j.member for j in jobs], [j.id for j in jobs]
    caller = floor.new_caller()
    assert await floor.store.complete(0, caller, members[1:2], ids[1:2], ["t-1"], [], []) == []
    assert await floor.store.complete(0, caller, members, ids, ["t-1"] * 3, [], []) == [1]


async def test_a_tenant_is_not_taken_for_an_id(floor: Floor) -> None:
    # Tries to forget a job whose id is a tenant's name: leases, ids and tenants are neighbours in one list.
    await floor.enqueue("acme", when="+5")
    assert await floor.end("complete", await floor.running("a", "b")) == [2]
    assert await floor.where("acme") == "waiting"


async def test_results_are_kept_with_their_own_time(floor: Floor) -> None:
    # Tries to give a result to the wrong job, to keep it for ever, or to keep one for a stale run.
    jobs = await floor.running("a", "b", "c", "d")
    await floor.end("complete", [jobs[2]])
    result = encode_result(1, "w1", 1, 2, "value\n\0")
    args = floor.end_args("complete", jobs, 0, 3)
    args += [1, 60_000, result, 2, 60_000, b"stale", 3, 5_000, b"d's"]
    assert await floor.call("complete", *args) == [3, 2]
    assert [await floor.where(i) for i in "abcd"] == ["gone", "kept", "gone", "kept"]
    assert await floor.store.locate(0, "b") == ("kept", result, b"")
    assert 5_000 < await floor.client.pttl(floor.keys.result("b")) <= 60_000
    assert 0 < await floor.client.pttl(floor.keys.result("d")) <= 5_000


async def test_a_repeat_with_results_changes_nothing(floor: Floor) -> None:
    # Tries to store a result again after its reader removed it.
    jobs = await floor.running("a")
    args = [*floor.end_args("complete", jobs, 1, 1), 0, 60_000, b"value"]
    assert await floor.call("complete", *args) == [1]
    await floor.client.delete(floor.keys.result("a"))
    assert await floor.call("complete", *args) == [1]
    assert await floor.where("a") == "gone"


async def test_an_id_is_free_once_its_job_has_gone(floor: Floor) -> None:
    # Tries to keep a key taken by a finished job, or to let an old lease end the new job.
    (old,) = await floor.running("a")
    await floor.end("complete", [old])
    await floor.enqueue("a", max_attempts=2)
    assert await floor.end("complete", [old]) == [0, 0]
    (new,) = await floor.claim()
    assert new.record == record_of("acme", 2)
    assert new.fence > old.fence


async def test_the_rate_counts_by_minute_and_tenant(floor: Floor) -> None:
    # Tries to count a stale run, or to keep minutes for ever.
    await floor.enqueue("a", "b", tenant="x")
    await floor.enqueue("c", tenant="y/z")
    jobs = await floor.claim()
    await floor.end("complete", jobs[:1])
    await floor.end("complete", jobs)
    minute = floor.keys.rate(floor.now // 60_000)
    assert await floor.client.hgetall(minute) == {b"x": b"2", b"y%2Fz": b"1"}
    assert 0 < await floor.client.ttl(minute) <= 180
    floor.clock.advance(60)
    await floor.end("complete", await floor.running("d"))
    assert await floor.client.hgetall(floor.keys.rate(floor.now // 60_000)) == {b"acme": b"1"}


@pytest.mark.parametrize("keep_ms", [0, -1])
async def test_a_result_to_keep_for_no_time_does_not_break_the_end(floor: Floor, keep_ms: int) -> None:
    # Tries to end jobs by half: keeping for 0 ms is an error of the server, after the records have gone.
    jobs = await floor.running("a", "b")
    args = floor.end_args("complete", jobs, 0, 2)
    assert await floor.call("complete", *args, 0, keep_ms, b"value", 1, 1_000, b"b's") == [2]
    assert [await floor.where("a"), await floor.where("b")] == ["gone", "kept"]


async def test_a_large_batch(floor: Floor) -> None:
    # Tries to pass more values to a command than Lua can unpack.
    ids = [f"j{n:04}" for n in range(1_500)]
    for start in range(0, 1_500, 500):
        await floor.enqueue(*ids[start : start + 500])
    jobs = await floor.claim(1_500, lease_ms=LEASE_MS)
    assert [job.id for job in jobs] == ids
    assert await floor.end("complete", jobs) == [1_500]
