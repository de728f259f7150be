"""repair: nothing -> waiting or dead. Each planted fault: `integration/test_doctor.py`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.floor import Floor

pytestmark = pytest.mark.anyio

DAY_MS = 86_400_000


async def repair(floor: Floor, *rows: Any, fix: int = 1, limit: int = 1_000, lane_limit: int = 4_000) -> list[str]:
    """The words, in the order of the suspects."""
    answer = await floor.call("repair", floor.now, fix, limit, lane_limit, DAY_MS, *rows)
    return [word.decode() for word in answer[1::3]]


def none(*ids: str) -> list[str]:
    return [part for job_id in ids for part in (job_id, "none", "")]


async def test_jobs_in_their_places_are_fine_and_stay(floor: Floor) -> None:
    # Tries to find fault with every state, or to change a healthy job.
    await floor.running("run")
    await floor.dead("dead")
    await floor.enqueue("ready")
    await floor.enqueue("later", when="+5000")
    before = await floor.picture()
    assert await repair(floor, *none("run", "dead", "ready", "later", "gone")) == ["fine"] * 5
    assert await floor.picture() == before


async def test_a_record_in_no_place_waits_now_and_a_repeat_changes_nothing(floor: Floor) -> None:
    # Tries to enqueue it twice, to tally it twice, or to change something while only looking.
    await floor.enqueue("a", when="+5000")
    await floor.client.zrem(floor.keys["due"], "acme/a")
    await floor.client.hdel(floor.keys["tally"], "w acme")
    broken = await floor.picture()
    assert await repair(floor, *none("a"), fix=0) == ["nowhere"]
    assert await floor.picture() == broken
    assert await repair(floor, *none("a")) == ["nowhere"]
    mended = await floor.picture()
    assert await repair(floor, *none("a")) == ["fine"]
    assert await floor.picture() == mended
    assert (await floor.totals())["repaired"] == 1


async def test_a_suspect_that_moved_is_not_touched(floor: Floor) -> None:
    # Tries to take a job that was claimed since the first look for one without a place.
    (job,) = await floor.running("a")
    await floor.enqueue("b")
    rows = ["a", "lane", "acme", "a", "due", "acme/a", "b", "lease", "b#1@w", "b", "overflow", "acme acme/b"]
    before = await floor.picture()
    assert await repair(floor, *rows) == ["fine", "fine"]
    assert await floor.picture() == before
    assert job.member


async def test_the_budget_leaves_the_rest_for_later(floor: Floor) -> None:
    # Tries to hold up the server, or to do nothing at all when the budget is small.
    for n in range(5):
        await floor.enqueue(f"j{n}", when="+5000")
    words = await repair(floor, *none(*(f"j{n}" for n in range(5))), limit=1)
    assert words == ["fine", "later", "later", "later", "later"]


async def test_a_lane_past_its_limit_gives_no_verdict(floor: Floor) -> None:
    # Tries to call a job lost that stands behind the last entry looked at.
    for n in range(4):
        await floor.enqueue(f"j{n}")
    before = await floor.picture()
    assert await repair(floor, *none("j3"), lane_limit=2) == ["unsure"]
    assert await floor.picture() == before


@pytest.mark.parametrize("raw", [b"", b"scribble", b"x acme 0 5 0 0\n", b"q acme 0 five\n"])
async def test_an_unreadable_record_is_left_alone(floor: Floor, raw: bytes) -> None:
    # Tries to lose bytes that a human may still make sense of.
    await floor.client.hset(floor.keys["jobs"], "a", raw)
    assert await repair(floor, *none("a")) == ["unreadable"]
    assert await floor.client.hget(floor.keys["jobs"], "a") == raw
    await floor.client.hdel(floor.keys["jobs"], "a")


async def test_an_id_that_looks_like_a_pattern_finds_only_its_own_lease(floor: Floor) -> None:
    # Tries to take the lease of `ab` for one of `a*`.
    await floor.running("ab")
    await floor.enqueue("a*", when="+5000")
    await floor.client.zrem(floor.keys["due"], "acme/a*")
    await floor.client.hdel(floor.keys["tally"], "w acme")
    assert await repair(floor, *none("a*")) == ["nowhere"]
    assert "a*" in await floor.due()
