"""idle: changes nothing. Whether a shard has nothing ready, running or due."""

from __future__ import annotations

import pytest

from tests.support.floor import Floor

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("place", "idle"), [("empty", 1), ("later", 1), ("dead", 1), ("due", 0), ("ready", 0), ("running", 0)]
)
async def test_idle_means_that_nothing_is_to_be_done_now(floor: Floor, place: str, idle: int) -> None:
    # Tries to call a shard idle that has work, or busy for what is dead or to come.
    if place in ("later", "due"):
        await floor.enqueue("a", when="+500")
        floor.clock.advance(0.499 if place == "later" else 0.5)
    elif place == "dead":
        await floor.dead("a")
    elif place == "running":
        await floor.running("a")
    elif place == "ready":
        await floor.enqueue("a")
    before = await floor.picture()
    assert await floor.call("idle", floor.now) == [idle]
    assert await floor.call("idle", floor.now) == [idle]
    assert await floor.picture() == before
    assert await floor.store.is_idle() == bool(idle)


async def test_any_shard_may_be_the_busy_one(floor: Floor) -> None:
    # Tries to look at the first shard only.
    floor.shard = 1
    await floor.enqueue("a")
    assert not await floor.store.is_idle()
    await floor.end("complete", await floor.claim())
    assert await floor.store.is_idle()
