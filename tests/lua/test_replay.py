"""replay: dead -> waiting, with a new set of attempts."""

from __future__ import annotations

import pytest

from redisched.codec import open_record
from tests.support.floor import Floor

pytestmark = pytest.mark.anyio


async def test_a_dead_letter_gets_a_new_life(floor: Floor) -> None:
    # Tries to lose the runs, to keep the used-up budget, or to leave the entry among the dead.
    await floor.dead("a", "b", tenant="t", priority="low", max_attempts=2)
    old = open_record(await floor.record("a"))
    assert await floor.call("replay", floor.now, "a") == [1]
    new = open_record(await floor.record("a"))
    assert (new.dead, new.attempts, new.max_attempts, new.mark) == (False, 0, 2, "0")
    assert (new.body, new.runs, new.priority) == (old.body, old.runs, "low")
    assert await floor.due() == {"a": 0}
    assert [f[b"id"] for _, f in await floor.client.xrange(floor.keys["dead"])] == [b"b"]
    assert await floor.totals() == {"enqueued": 2, "buried": 2, "replayed": 1}
    assert await floor.client.llen(floor.keys["alarm"]) == 1


async def test_a_repeat_changes_nothing(floor: Floor) -> None:
    # Tries to put a letter back twice: by a repeated call, by an id twice in one call.
    await floor.dead("a")
    assert await floor.call("replay", floor.now, "a", "a") == [1, 1]
    after = await floor.picture()
    assert await floor.call("replay", floor.now, "a") == [0, 0]
    assert await floor.picture() == after


@pytest.mark.parametrize("record", [None, "", "garbage", "d", "q acme 0 5 0 0\n"])
async def test_what_is_not_dead_is_left_alone(floor: Floor, record: str | None) -> None:
    # Tries to bring something to life that is not dead, and to miss the letter beside it.
    await floor.dead("a")
    if record is not None:
        await floor.set_record("x", record)
        floor.expect("job x")
    assert await floor.call("replay", floor.now, "x", "a") == [1, 0]
    assert list(await floor.due()) == ["a"]


async def test_living_jobs_are_left_alone(floor: Floor) -> None:
    # Tries to double a job that waits, is ready, or runs.
    await floor.running("running")
    await floor.enqueue("waiting", when="+5")
    await floor.enqueue("ready")
    before = await floor.picture()
    assert await floor.store.replay(0, ["running", "waiting", "ready", "gone"]) == 0
    assert await floor.picture() == before


async def test_a_letter_whose_entry_was_removed_by_hand(floor: Floor) -> None:
    # Tries to lose a job because a human deleted the stream.
    await floor.dead("a", "b")
    await floor.client.delete(floor.keys["dead"])
    assert await floor.store.replay(0, ["a", "b"]) == 2
    assert list(await floor.due()) == ["a", "b"]


async def test_it_can_die_and_be_replayed_again(floor: Floor) -> None:
    # Tries to confuse the entries of two deaths of one job.
    await floor.dead("a")
    for _ in range(3):
        assert await floor.store.replay(0, ["a"]) == 1
        await floor.promote()
        assert await floor.end("bury", await floor.claim()) == [1]
        assert await floor.client.xlen(floor.keys["dead"]) == 1
    assert (await floor.header("a"))[2] == "1"
