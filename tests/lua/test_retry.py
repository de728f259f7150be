"""retry: running -> waiting. See also `test_leases.py`."""

from __future__ import annotations

from typing import Any

import pytest

from redisched.codec import decode_runs, open_record
from redisched.model import Claimed, Outcome
from tests.support.floor import Floor, header, run_of

pytestmark = pytest.mark.anyio


async def retry(
    floor: Floor, job: Claimed, counted: int = 1, most: int = 5, delay_ms: int = 1_000, run: Any = None
) -> list[int]:
    run = run_of(1) if run is None else run
    return await floor.call("retry", floor.now, 0, job.member, job.id, counted, most, delay_ms, run)


@pytest.mark.parametrize("delay_ms", [0, 1, 86_400_000])
async def test_a_failed_job_waits_for_its_delay(floor: Floor, delay_ms: int) -> None:
    # Tries to be early, to skip `due`, or to leave the lease beside it.
    (job,) = await floor.running("a", tenant="t")
    assert await retry(floor, job, delay_ms=delay_ms) == [1]
    assert await floor.due() == {"a": delay_ms}
    assert await floor.client.hgetall(floor.keys["tally"]) == {b"w t": b"1"}
    assert await floor.totals() == {"enqueued": 1, "retried": 1}


@pytest.mark.parametrize(("counted", "attempts"), [(1, "1"), (0, "0")])
async def test_an_attempt_counts_when_the_worker_says_so(floor: Floor, counted: int, attempts: str) -> None:
    # Tries to use up the budget by a handler that only asked for another time.
    (job,) = await floor.running("a", priority="low")
    await retry(floor, job, counted=counted, most=9)
    assert (await floor.header("a"))[:5] == ["q", "acme:l", attempts, "9", "0"]


async def test_runs_gather_and_the_body_stays(floor: Floor) -> None:
    # Tries to damage the body, or an earlier run, by text that looks like a header or a run.
    runs = [run_of(n, error=f"q acme 0 5 0 3\n%s \0 {n} w 1 2 failed 3\nabc") for n in (1, 2, 3)]
    await floor.enqueue("a")
    body = open_record(await floor.record("a")).body
    for run in runs:
        (job,) = await floor.claim()
        assert await retry(floor, job, delay_ms=0, run=run) == [1]
        await floor.promote()
    record = open_record(await floor.record("a"))
    assert (record.body, record.attempts, record.runs) == (body, 3, b"".join(runs))
    assert [run.attempt for run in decode_runs(record.runs)] == [1, 2, 3]


async def test_a_record_does_not_grow_for_ever(floor: Floor) -> None:
    # Tries to let a job that is retried for a year fill the memory with its runs.
    await floor.enqueue("a")
    sizes = []
    for n in range(1, 13):
        (job,) = await floor.claim()
        await retry(floor, job, most=99, delay_ms=0, run=run_of(n, error="x" * 4_000))
        sizes.append(len(await floor.record("a")))
        await floor.promote()
    runs = decode_runs(open_record(await floor.record("a")).runs)
    assert max(sizes) < 17_000
    assert [run.attempt for run in runs][-1] == 12, "the last run is always there"
    assert header(await floor.record("a"))[2] == "12"


@pytest.mark.parametrize(
    ("waits_ms", "delay_ms", "rings"), [(None, 500, 1), (900, 500, 1), (500, 500, 1), (100, 500, 0)]
)
async def test_the_alarm_rings_for_an_earliest_job(
    floor: Floor, waits_ms: int | None, delay_ms: int, rings: int
) -> None:
    # Tries to let schedulers sleep past a retry, or to wake them for nothing.
    (job,) = await floor.running("a")
    if waits_ms is not None:
        await floor.enqueue("other", when=f"+{waits_ms}")
    await floor.client.delete(floor.keys["alarm"])
    await retry(floor, job, delay_ms=delay_ms)
    assert await floor.client.llen(floor.keys["alarm"]) == rings


async def test_the_same_lease_twice_in_one_call(floor: Floor) -> None:
    # Tries to put one job back twice.
    (job,) = await floor.running("a")
    one = [job.member, job.id, 1, 5, 10, run_of(1, Outcome.TIMEOUT)]
    assert await floor.call("retry", floor.now, 0, *one, *one) == [1, 1]
    assert (await floor.header("a"))[2] == "1"


async def test_the_store_answers_who_was_stale(floor: Floor) -> None:
    # Tries to lose the number of a call between the store and its script.
    (job,) = await floor.running("a")
    failed = [job.member, job.id, 1, 5, 10, run_of(1)]
    caller = floor.new_caller()
    assert await floor.store.retry(0, caller, failed) == []
    assert await floor.store.retry(0, caller, failed) == [0]
