"""bury: running -> dead. See also `test_leases.py`."""

from __future__ import annotations

import pytest

from redisched.codec import open_record
from tests.support.floor import Floor, run_of

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("priority", ["high", "normal", "low"])
async def test_a_dead_letter_keeps_all_that_a_human_needs(floor: Floor, priority: str) -> None:
    # Tries to lose the arguments, the runs or the reason, or to forget which entry is whose.
    await floor.enqueue("a", tenant="t{1}", priority=priority)
    body = open_record(await floor.record("a")).body
    (job,) = await floor.claim()
    run = run_of(1, error="ValueError: no\nsuch thing")
    assert await floor.call("bury", floor.now, 0, job.member, "a", "ValueError: no", run) == [1]
    ((entry, fields),) = await floor.client.xrange(floor.keys["dead"])
    assert fields == {b"id": b"a", b"tenant": b"t%7B1%7D", b"error": b"ValueError: no"}
    record = open_record(await floor.record("a"))
    assert (record.dead, record.attempts, record.mark) == (True, 1, entry.decode())
    assert (record.body, record.runs, record.priority) == (body, run, priority)
    assert await floor.store.locate(0, "a") == ("dead", await floor.record("a"), entry)
    assert await floor.totals() == {"enqueued": 1, "buried": 1}


async def test_each_letter_has_an_entry_of_its_own(floor: Floor) -> None:
    # Tries to mix up entries that are made in one millisecond.
    await floor.dead("a", "b", "c", "d")
    entries = {f[b"id"].decode(): e.decode() for e, f in await floor.client.xrange(floor.keys["dead"])}
    assert list(entries) == ["a", "b", "c", "d"]
    assert {job_id: (await floor.header(job_id))[4] for job_id in entries} == entries


async def test_a_dead_job_is_left_alone(floor: Floor) -> None:
    # Tries to run a dead job: nothing but replay, purge or its own key may touch it.
    (job,) = await floor.dead("a")
    before = await floor.picture()
    floor.clock.advance(1_000_000)
    assert await floor.promote() == (0, -1)
    assert await floor.claim() == []
    assert await floor.store.recover(0, 10) == (0, 0, -1)
    assert await floor.store.renew(0, 1_000, [job.member]) == [0]
    assert await floor.store.cancel(0, "a", job.member, 1_000) == "dead"
    assert await floor.picture() == before


async def test_the_store_answers_who_was_stale(floor: Floor) -> None:
    # Tries to bury a job twice, by the same lease in one call and in the next.
    (job,) = await floor.running("a")
    failed = [job.member, job.id, "no luck", run_of(1)]
    assert await floor.store.bury(0, floor.caller, failed * 2) == [1]
    assert await floor.store.bury(0, floor.caller, failed) == [0]
    assert await floor.client.xlen(floor.keys["dead"]) == 1
