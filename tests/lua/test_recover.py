"""recover: running -> waiting, or dead when the budget is used up."""

from __future__ import annotations

import pytest

from redisched.codec import decode_runs, open_record
from redisched.model import Outcome
from tests.support.floor import LEASE_MS, Floor

pytestmark = pytest.mark.anyio


async def recover(floor: Floor, limit: int = 100) -> list[int]:
    return await floor.call("recover", floor.now, limit, 0, 0)


async def test_nothing_to_recover(floor: Floor) -> None:
    # Tries to take a lease that has not ended, or to write where nothing runs.
    before = await floor.picture()
    assert await recover(floor) == [0, 0, -1]
    assert await floor.picture() == before
    await floor.running("a")
    before = await floor.picture()
    assert await recover(floor) == [0, 0, LEASE_MS]
    floor.clock.advance(LEASE_MS / 1000 - 0.001)
    assert await recover(floor) == [0, 0, 1]
    assert await floor.picture() == before


@pytest.mark.parametrize("job_id", ["a", "nightly@1700000000000", "a#1@b#2@c"])
async def test_a_lost_job_waits_again(floor: Floor, job_id: str) -> None:
    # Tries to lose a job with its host, or to give it back without charging an attempt.
    await floor.running(job_id, tenant="t", priority="high")
    floor.clock.advance(LEASE_MS / 1000)
    assert await recover(floor) == [1, 0, -1]
    assert await floor.due() == {job_id: 0}
    record = open_record(await floor.record(job_id))
    assert (record.attempts, record.priority) == (1, "high")
    (run,) = decode_runs(record.runs)
    assert (run.attempt, run.worker, run.started_at, run.outcome) == (1, "w1", None, Outcome.LOST)
    assert run.ended_at == floor.clock.now()
    assert await floor.totals() == {"enqueued": 1, "recovered": 1}
    assert await floor.client.llen(floor.keys["alarm"]) == 1
    after = await floor.picture()
    assert await recover(floor) == [0, 0, -1], "the same call again takes nothing"
    assert await floor.picture() == after


async def test_a_job_that_kills_hosts_dies(floor: Floor) -> None:
    # Tries to take hosts down for ever.
    await floor.enqueue("a", max_attempts=2)
    for attempt in (1, 2):
        await floor.promote()
        assert len(await floor.claim()) == 1
        floor.clock.advance(LEASE_MS / 1000)
        assert await recover(floor) == [1, attempt - 1, -1]
    assert await floor.where("a") == "dead"
    ((_, fields),) = await floor.client.xrange(floor.keys["dead"])
    assert fields[b"error"] == b"its lease ended without an answer; no attempts left"
    assert await floor.totals() == {"enqueued": 1, "recovered": 2, "buried": 1}


async def test_the_limit_bounds_a_call_and_the_longest_lost_go_first(floor: Floor) -> None:
    # Tries to hold the server up when a big host is lost.
    for n in range(5):
        await floor.running(f"j{n}")
        floor.clock.advance(0.01)
    floor.clock.advance(LEASE_MS / 1000 - 0.025)
    assert await recover(floor, 2) == [2, 0, 0]
    assert list(await floor.due()) == ["j0", "j1"]
    assert await recover(floor, 2) == [1, 0, 15 - 10]
    assert await floor.where("j3") == "running"


async def test_a_renewed_lease_is_left_alone(floor: Floor) -> None:
    # Tries to take a job from a worker that is alive, or from its next run.
    a, b = await floor.running("a", "b")
    floor.clock.advance(LEASE_MS / 1000 - 1)
    assert await floor.store.renew(0, LEASE_MS, [a.member]) == []
    floor.clock.advance(1)
    assert await recover(floor) == [1, 0, LEASE_MS - 1_000]
    assert [await floor.where("a"), await floor.where("b")] == ["running", "waiting"]
    assert await floor.store.renew(0, LEASE_MS, [b.member]) == [0], "a lease that was taken stays lost"


@pytest.mark.parametrize("record", [None, "", "garbage", "d acme 1 5 9-9 0\n"])
async def test_a_lease_without_a_living_record_ends(floor: Floor, record: str | None) -> None:
    # Tries to stop recovery, or to invent a job, by a lease whose record is missing, dead or no record.
    await floor.running("a", "ghost", "b")
    await floor.set_record("ghost", record)
    floor.clock.advance(LEASE_MS / 1000)
    assert await recover(floor) == [3, 0, -1]
    assert list(await floor.due()) == ["a", "b"]
    assert not await floor.client.exists(floor.keys["leases"])
    await floor.set_record("ghost", None)
    floor.expect("tally 'r acme' is 1, counted 0")


async def test_a_member_that_is_no_lease_goes(floor: Floor) -> None:
    # Tries to block the head of the leases by something that is none.
    await floor.client.zadd(floor.keys["leases"], {"no lease": 1, "a#x@w": 2})
    await floor.running("a")
    floor.clock.advance(LEASE_MS / 1000)
    assert await recover(floor) == [3, 0, -1]
    assert not await floor.client.exists(floor.keys["leases"])


async def test_after_an_outage_the_living_renew_first(floor: Floor) -> None:
    # Tries to take the leases of the living for ended, because nobody could renew them while the server was away.
    async def look() -> list[int]:
        return await floor.call("recover", floor.now, 100, 1_250, 3_000)

    living, dead = await floor.running("living", "dead")
    assert await look() == [0, 0, LEASE_MS]
    floor.clock.advance(1.2)
    assert await look() == [0, 0, LEASE_MS - 1_200], "a look in time is no outage"
    floor.clock.advance(20)
    assert await look() == [0, 0, 3_000], "nothing is taken back, though both leases ended"
    floor.clock.advance(1)
    assert await look() == [0, 0, 2_000], "a second scheduler does not make it longer"
    assert await floor.store.renew(0, LEASE_MS, [living.member]) == []
    floor.clock.advance(1)
    assert await look() == [0, 0, 1_000]
    floor.clock.advance(1)
    assert await look() == [1, 0, LEASE_MS - 2_000], "then the dead one's is"
    assert await floor.store.complete(0, floor.caller, [living.member], ["living"], ["acme"], [], []) == []
    await floor.promote()
    assert await floor.claim_ids() == [dead.id]
    floor.clock.advance(20)
    assert (await look())[0] == 1, "a scheduler that is always late does not put recovery off for ever"
