"""stale: changes no state. The run of a worker that came back too late is added to its job."""

from __future__ import annotations

from dataclasses import replace

import pytest

from redisched.codec import open_record
from redisched.model import Outcome
from tests.support.floor import Floor, run_of

pytestmark = pytest.mark.anyio
LATE = run_of(1, Outcome.STALE, "too late % ( [ \0")


@pytest.mark.parametrize("place", ["waiting", "ready", "running", "dead"])
async def test_a_late_run_is_added_once(floor: Floor, place: str) -> None:
    # Tries to move the job, to change its header, or to add the run again when the call is repeated.
    if place == "dead":
        await floor.dead("a")
    elif place == "running":
        await floor.running("a")
    else:
        await floor.enqueue("a", when="+5" if place == "waiting" else "+0")
    before = open_record(await floor.record("a"))
    assert await floor.call("stale", floor.now, "a", LATE) == [1]
    assert open_record(await floor.record("a")) == replace(before, runs=before.runs + LATE)
    assert await floor.where("a") == place
    assert (await floor.totals())["stale"] == 1
    after = await floor.picture()
    assert await floor.call("stale", floor.now, "a", LATE, "a", LATE) == [0]
    assert await floor.picture() == after


@pytest.mark.parametrize("record", [None, "", "garbage", "q acme x 5 0 0\n"])
async def test_a_job_that_is_gone_or_broken_is_left_alone(floor: Floor, record: str | None) -> None:
    # Tries to create a record out of a late run, or to stop before the next in the list.
    await floor.enqueue("a", when="+5")
    if record is not None:
        await floor.set_record("x", record)
        floor.expect("job x")
    assert await floor.call("stale", floor.now, "x", LATE, "a", LATE) == [1]
    assert await floor.client.hget(floor.keys["jobs"], "x") == (None if record is None else record.encode())
    await floor.store.stale(0, ["a", run_of(2, Outcome.STALE)])
    assert open_record(await floor.record("a")).runs == LATE + run_of(2, Outcome.STALE)


async def test_late_runs_do_not_grow_a_record_for_ever(floor: Floor) -> None:
    # Tries to fill the memory by late workers; and to add a run again after others were dropped.
    await floor.enqueue("a", when="+5")
    for n in range(1, 10):
        run = run_of(n, Outcome.STALE, "x" * 4_000)
        assert await floor.call("stale", floor.now, "a", run) == [1]
        assert await floor.call("stale", floor.now, "a", run) == [0]
        assert len(await floor.record("a")) < 17_000
