"""release: running -> waiting, or dead when a budget is used up. See also `test_leases.py`."""

from __future__ import annotations

import pytest

from redisched.codec import decode_runs, open_record
from redisched.model import Claimed, Outcome
from tests.support.floor import Floor

pytestmark = pytest.mark.anyio


async def release(floor: Floor, job: Claimed, why: str, delay_ms: int = 0, unknown_limit: int = 3) -> list[int]:
    return await floor.call("release", floor.now, 0, unknown_limit, job.member, job.id, why, delay_ms)


async def again(floor: Floor) -> Claimed:
    """The one waiting job, running once more."""
    floor.clock.advance(1)
    await floor.promote()
    (job,) = await floor.claim()
    return job


@pytest.mark.parametrize(
    ("why", "attempts", "mark"), [("unstarted", "0", "0"), ("lost", "1", "0"), ("unknown", "0", "1")]
)
@pytest.mark.parametrize("delay_ms", [0, 700])
async def test_a_job_is_given_back(floor: Floor, why: str, attempts: str, mark: str, delay_ms: int) -> None:
    # Tries to charge an attempt to a job that never started, or none to one that killed its worker.
    (job,) = await floor.running("a", tenant="t", priority="high")
    assert await release(floor, job, why, delay_ms) == [1]
    assert (await floor.header("a"))[:5] == ["q", "t:h", attempts, "5", mark]
    assert await floor.due() == {"a": delay_ms}
    assert await floor.totals() == {"enqueued": 1, "released": 1}
    assert await floor.client.llen(floor.keys["alarm"]) == 1


async def test_what_never_started_can_go_back_for_ever(floor: Floor) -> None:
    # Tries to bury a job because many workers drained.
    (job,) = await floor.running("a", max_attempts=1)
    for _ in range(5):
        assert await release(floor, job, "unstarted", unknown_limit=1) == [1]
        job = await again(floor)
    assert job.record == await floor.record("a")


@pytest.mark.parametrize("job_id", ["a", "nightly@1700000000000", "a#1@b#2@c"])
async def test_a_job_that_kills_its_worker_dies(floor: Floor, job_id: str) -> None:
    # Tries to kill workers for ever; and to misread the worker's name behind an id that looks like a lease.
    (job,) = await floor.running(job_id, max_attempts=2)
    assert await release(floor, job, "lost") == [1]
    assert await release(floor, await again(floor), "lost") == [1]
    assert await floor.where(job_id) == "dead"
    record = open_record(await floor.record(job_id))
    runs = decode_runs(record.runs)
    assert [(r.attempt, r.worker, r.outcome) for r in runs] == [
        (1, "w1", Outcome.LOST),
        (2, "w1", Outcome.LOST),
    ]
    assert record.attempts == 2
    ((_, fields),) = await floor.client.xrange(floor.keys["dead"])
    assert fields[b"error"] == b"its worker process died; no attempts left"
    assert await floor.totals() == {"enqueued": 1, "released": 2, "buried": 1}


async def test_a_stray_dies_at_its_limit(floor: Floor) -> None:
    # Tries to carry a job whose handler nobody knows in a circle for ever.
    (job,) = await floor.running("a", max_attempts=1)
    for mark in ("1", "2"):
        assert await release(floor, job, "unknown") == [1]
        assert (await floor.header("a"))[4] == mark
        job = await again(floor)
    assert await release(floor, job, "unknown") == [1]
    assert await floor.where("a") == "dead"
    assert (await floor.header("a"))[2] == "0", "no attempt was made"
    ((_, fields),) = await floor.client.xrange(floor.keys["dead"])
    assert fields[b"error"] == b"no worker knows its handler"


async def test_many_reasons_in_one_call(floor: Floor) -> None:
    # Tries to carry the verdict on one job over to the next.
    a, b, c, d = await floor.running("a", "b", "c", "d", max_attempts=1)
    held = [w for job, why in ((a, "lost"), (b, "unstarted"), (c, "unknown"), (d, "unstarted")) for w in (job, why)]
    flat = [w for job, why in zip(held[::2], held[1::2], strict=True) for w in (job.member, job.id, why, 5)]
    assert await floor.store.release(0, floor.caller, 1, flat) == []
    assert [await floor.where(i) for i in "abcd"] == ["dead", "waiting", "dead", "waiting"]
    assert await floor.store.release(0, floor.caller, 1, flat) == [0, 1, 2, 3]
