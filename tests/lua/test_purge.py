"""purge: dead -> gone. The letters named, or the oldest past a count or an age."""

from __future__ import annotations

import pytest

from redisched.clock import wall_ms
from tests.support.floor import Floor

pytestmark = pytest.mark.anyio
DAY_MS = 86_400_000


async def trim(floor: Floor, kept: int, age_ms: int = 100 * DAY_MS, limit: int = 100) -> list[int]:
    # Entries carry the server's own time, so age is counted from that, not from the test's clock.
    return await floor.call("purge", wall_ms() + 60_000, limit, kept, age_ms)


async def letters(floor: Floor) -> list[str]:
    return [f[b"id"].decode() for _, f in await floor.client.xrange(floor.keys["dead"])]


async def test_named_letters_go(floor: Floor) -> None:
    # Tries to take a neighbour along, or to leave a record, an entry or a count behind.
    await floor.dead("a", "b", "c", tenant="t")
    assert await floor.call("purge", floor.now, 2, 0, 0, "a", "never", "c", "a") == [2, 1, 3]
    assert await letters(floor) == ["b"]
    assert [await floor.where(i) for i in "abc"] == ["gone", "dead", "gone"]
    assert (await floor.totals())["purged"] == 2
    after = await floor.picture()
    assert await floor.store.purge(0, ["a", "c"]) == 0, "asked again there is nothing more"
    assert await floor.picture() == after


async def test_only_the_dead_are_purged(floor: Floor) -> None:
    # Tries to purge jobs that live.
    await floor.running("running")
    await floor.enqueue("waiting", when="+5")
    await floor.enqueue("ready")
    before = await floor.picture()
    assert await floor.call("purge", floor.now, 9, 0, 0, "running", "waiting", "ready") == [0, 0, 1, 2]
    assert await trim(floor, 0) == [0]
    assert await floor.picture() == before


@pytest.mark.parametrize("record", ["", "garbage", "d"])
async def test_a_record_that_cannot_be_read_is_no_letter(floor: Floor, record: str) -> None:
    # Tries to make the script stumble in the middle of a list.
    await floor.dead("a")
    await floor.set_record("x", record)
    assert await floor.call("purge", floor.now, 9, 0, 0, "x", "a") == [1, 0]
    floor.expect("job x")


async def test_naming_none_purges_none(floor: Floor) -> None:
    # Tries to take an empty list for "all": `purge` and `trim` are one script.
    await floor.dead("a")
    assert await floor.store.purge(0, []) == 0
    assert await letters(floor) == ["a"]


@pytest.mark.parametrize(
    ("kept", "limit", "rest"),
    [(5, 100, "abcde"), (4, 100, "bcde"), (1, 100, "e"), (0, 100, ""), (1, 2, "cde"), (9, 100, "abcde")],
)
async def test_the_oldest_past_the_count_go(floor: Floor, kept: int, limit: int, rest: str) -> None:
    # Tries to remove young letters before old ones, more than asked for, or fewer.
    await floor.dead(*"abcde")
    assert await trim(floor, kept, limit=limit) == [5 - len(rest)]
    assert await letters(floor) == list(rest)


@pytest.mark.parametrize(("past_ms", "rest"), [(-1, "a"), (0, "a"), (1, "")])
async def test_letters_past_their_age_go(floor: Floor, past_ms: int, rest: str) -> None:
    # Tries to keep letters for ever because they are few, or to remove one at the very end of its time.
    await floor.dead("a")
    ((entry, _),) = await floor.client.xrange(floor.keys["dead"])
    now_ms = int(entry.partition(b"-")[0]) + DAY_MS + past_ms
    for purged in (1 - len(rest), 0):
        assert await floor.call("purge", now_ms, 100, 100, DAY_MS) == [purged]
    assert await letters(floor) == list(rest)


async def test_a_trim_in_steps(floor: Floor) -> None:
    # Tries to stop at the limit for good.
    await floor.dead(*"abcdefg")
    assert [await floor.store.trim(0, 2, 1, 1_000 * DAY_MS) for _ in range(4)] == [2, 2, 2, 0]
    assert await letters(floor) == ["g"]


async def test_an_empty_store(floor: Floor) -> None:
    # Tries to write where there is nothing to purge.
    before = await floor.picture()
    assert await trim(floor, 0) == [0]
    assert await floor.call("purge", floor.now, 1, 0, 0, "a") == [0, 0]
    assert await floor.picture() == before


@pytest.mark.parametrize("living", [False, True])
async def test_an_entry_whose_job_is_not_dead_goes_alone(floor: Floor, living: bool) -> None:
    # Tries to remove a living job by a leftover entry of its id, or to keep the leftover for ever.
    if living:
        await floor.enqueue("ghost", when="+5")
    await floor.client.xadd(floor.keys["dead"], {"id": "ghost", "tenant": "acme", "error": "x"})
    await floor.dead("a")
    assert await trim(floor, 0, limit=1) == [0]
    assert await letters(floor) == ["a"]
    assert await floor.where("ghost") == ("waiting" if living else "gone")
