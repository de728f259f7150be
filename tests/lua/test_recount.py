"""recount: changes no state. Each planted fault: `integration/test_doctor.py`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.floor import Floor

pytestmark = pytest.mark.anyio


async def recount(floor: Floor, *tenants: str, fix: int = 1, limit: int = 1_000) -> list[list[Any]]:
    answer = await floor.call("recount", fix, limit, *tenants)
    return [answer[n : n + 10] for n in range(0, len(answer), 10)]


async def test_it_counts_every_place_of_the_tenants_asked_for(floor: Floor) -> None:
    # Tries to mix tenants up, or to change what is right.
    await floor.running("run")
    await floor.dead("dead")
    await floor.enqueue("ready")
    await floor.enqueue("high", priority="high")
    await floor.enqueue("later", when="+5000")
    await floor.enqueue("other", tenant="other", when="+5000")
    before = await floor.picture()
    row, nobody = await recount(floor, "acme", "nobody", fix=0)
    assert row[:7] == [b"acme", 1, 1, 1, 1, 1, 1]
    assert (sorted(row[7]), sorted(row[8]), row[9]) == (sorted(b"hn"), sorted(b"hn"), 1)
    assert nobody == [b"nobody", 0, 0, 0, 0, 0, 0, b"", b"", 0]
    assert await floor.picture() == before


async def test_a_fix_sets_tally_marks_and_ring_and_a_repeat_changes_nothing(floor: Floor) -> None:
    # Tries to leave a wrong count, a tenant that nobody visits, or one that is visited twice.
    await floor.enqueue("ready")
    await floor.enqueue("later", when="+5000")
    right = await floor.picture()
    await floor.client.hset(floor.keys["tally"], mapping={"w acme": 9, "r acme": 4})
    await floor.client.hset(floor.keys["ringed"], "acme", "l 3")
    await floor.client.rpush(floor.keys["ring"], "acme", "acme")
    await recount(floor, "acme")
    mended = await floor.picture()
    assert mended[floor.keys["tally"]] == right[floor.keys["tally"]]
    assert mended[floor.keys["ring"]] == right[floor.keys["ring"]]
    assert await floor.client.hget(floor.keys["ringed"], "acme") == b"n 3"
    await recount(floor, "acme")
    assert (await floor.picture())[floor.keys["ringed"]] == mended[floor.keys["ringed"]]


async def test_more_than_the_limit_is_not_counted_and_not_changed(floor: Floor) -> None:
    # Tries to hold up the server, or to write a tally that was not counted.
    for n in range(3):
        await floor.enqueue(f"j{n}", when="+5000")
    (row,) = await recount(floor, "acme", limit=2)
    assert row[1:7] == [-1, 0, 0, 3, 0, 0]
    assert await floor.client.hgetall(floor.keys["tally"]) == {b"w acme": b"3"}
