"""What complete, retry, bury and release have in common: they end leases, and only those that are held.

What each of them does with a job is in its own file.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from redisched.model import Claimed
from tests.support.floor import LEASE_MS, LEASE_VERBS, Floor

pytestmark = pytest.mark.anyio
SEQ_AT = 1
TOTAL = {"complete": "done", "retry": "retried", "bury": "buried", "release": "released"}


@pytest.fixture(params=LEASE_VERBS)
def verb(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def other_fence(job: Claimed) -> Claimed:
    return replace(job, member=job.member.replace(str(job.fence), str(job.fence + 1)))


def other_worker(job: Claimed) -> Claimed:
    return replace(job, member=job.member.replace("@w1", "@w2"))


def no_lease(job: Claimed) -> Claimed:
    return replace(job, member="")


def other_id(job: Claimed) -> Claimed:
    return replace(job, id="nobody", member=job.member.replace(job.id, "nobody"))


@pytest.mark.parametrize("forge", [other_fence, other_worker, no_lease, other_id])
async def test_a_lease_that_is_not_the_callers_ends_nothing(floor: Floor, verb: str, forge: type) -> None:
    # Tries to end somebody's run with another fence, another worker's name or no lease at all.
    (job,) = await floor.running("a")
    before = await floor.picture()
    assert await floor.end(verb, [forge(job)]) == [0, 0]
    after = await floor.picture()
    assert {k: v for k, v in after.items() if k != floor.keys["totals"]} == {
        k: v for k, v in before.items() if k != floor.keys["totals"]
    }
    assert (await floor.totals()) == {"enqueued": 1}


async def test_an_empty_store_holds_no_lease(floor: Floor, verb: str) -> None:
    # Tries to create a job, or a tally of -1, out of a lease from another life of the server.
    job = Claimed(0, "a", "a#1@w1", 1, b"q acme 0 5 0 0\n")
    assert await floor.end(verb, [job, job]) == [0, 0, 1]
    assert not await floor.client.exists(floor.keys["jobs"], floor.keys["due"], floor.keys["tally"])


async def test_only_the_last_delivery_counts(floor: Floor, verb: str) -> None:
    # Tries to end the new run with the old run's lease: the job was recovered and given to another worker.
    (old,) = await floor.running("a")
    floor.clock.advance(LEASE_MS / 1000)
    assert await floor.store.recover(0, 10) == (1, 0, -1)
    assert await floor.end(verb, [old]) == [0, 0], "waiting again"
    await floor.promote()
    assert await floor.end(verb, [old]) == [0, 0], "ready again"
    (new,) = await floor.claim(worker="w2")
    assert await floor.end(verb, [old]) == [0, 0], "running elsewhere"
    assert await floor.where("a") == "running"
    assert await floor.end(verb, [new]) == [1]
    assert await floor.end(verb, [new]) == [0, 0], "ended"


async def test_a_lease_past_its_end_counts_until_it_is_taken(floor: Floor, verb: str) -> None:
    # Tries to throw away work that is done because its worker was slow and nobody took the job meanwhile.
    (job,) = await floor.running("a")
    floor.clock.advance(10 * LEASE_MS / 1000)
    assert await floor.end(verb, [job]) == [1]
    assert await floor.store.recover(0, 10) == (0, 0, -1)


async def test_a_cancelled_job_stays_cancelled(floor: Floor, verb: str) -> None:
    # Tries to bring a job back, or to overwrite its end, from a worker that has not heard of the cancel yet.
    (job,) = await floor.running("a")
    assert await floor.store.cancel(0, "a", job.member, 60_000) == "cancelled"
    assert await floor.end(verb, [job]) == [0, 0]
    assert await floor.store.locate(0, "a") == ("kept", b"c", b"")


async def test_held_and_stale_in_one_call(floor: Floor, verb: str) -> None:
    # Tries to mix up the jobs of a batch: the stale ones are named by index, the others end.
    jobs = await floor.running("a", "b", "c", "d", "e")
    await floor.end("complete", [jobs[0], jobs[3]])
    assert await floor.end(verb, jobs) == [3, 0, 3]
    assert not await floor.client.exists(floor.keys["leases"])
    assert (await floor.totals())[TOTAL[verb]] == (5 if verb == "complete" else 3)


async def test_tenants_and_priorities_in_one_call(floor: Floor, verb: str) -> None:
    # Tries to book the end of one tenant's run on another, or on a lane instead of its tenant.
    for tenant in ("a", "b"):
        for priority in ("high", "normal", "low"):
            await floor.enqueue(f"{tenant}-{priority}", tenant=tenant, priority=priority)
    jobs = await floor.claim()
    assert await floor.end(verb, jobs[1:]) == [5]
    assert await floor.client.hget(floor.keys["tally"], "r a") == b"1"
    assert await floor.client.hget(floor.keys["tally"], "r b") is None


async def test_a_repeat_changes_nothing(floor: Floor, verb: str) -> None:
    # Tries to count an end twice, or to answer "stale" to a caller whose first reply was lost.
    jobs = await floor.running("a", "b")
    args = floor.end_args(verb, [jobs[0], other_fence(jobs[1])], 0)
    assert await floor.check_repeats(verb, args, SEQ_AT) == [1, 1]


async def test_a_repeat_after_the_job_went_on(floor: Floor, verb: str) -> None:
    # Tries to end a second run of the same job by a late copy of the call that ended the first.
    caller = floor.new_caller()
    (job,) = await floor.running("a")
    args = floor.end_args(verb, [job], 3)
    assert await floor.call(verb, *args, caller=caller) == [1]
    floor.clock.advance(1)
    await floor.store.purge(0, ["a"])
    await floor.enqueue("a")
    await floor.promote()
    assert len(await floor.claim()) == 1
    assert await floor.call(verb, *args, caller=caller) == [1]
    assert await floor.where("a") == "running"


@pytest.mark.parametrize("record", [None, "", "q", "garbage\n", "q acme x 5 0 0\n"])
async def test_a_lease_whose_record_is_broken(floor: Floor, verb: str, record: str | None) -> None:
    # Tries to break a batch in the middle by a record that is missing or unreadable: its neighbours must end.
    jobs = await floor.running("a", "broken", "b")
    await floor.set_record("broken", record)
    if verb == "complete":
        assert await floor.end(verb, jobs) == [3], "the end needs no record"
        return
    assert await floor.end(verb, jobs) == [2, 1]
    assert await floor.client.zrange(floor.keys["leases"], 0, -1) == [jobs[1].member.encode()]
    assert await floor.end("complete", [jobs[1]]) == [1]


async def test_a_caller_without_numbers_is_not_protected(floor: Floor, verb: str) -> None:
    # Tries to keep a number for who asked for none.
    (job,) = await floor.running("a")
    assert await floor.end(verb, [job], seq=0) == [1]
    assert not [key for key in await floor.picture() if ":call:" in key]
