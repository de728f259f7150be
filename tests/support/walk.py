"""A walk through every script, for tests of what is common to all: a fresh server, a flushed cache, one slot.

Used by `tests/lua`. A script that the walk leaves out is found by the test that compares the two lists.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from tests.support.floor import LEASE_MS, Floor, parcel, run_of


async def nothing() -> None:
    pass


async def walk(floor: Floor, before_each: Callable[[], Awaitable[Any]] = nothing) -> set[str]:
    """Calls every script once or more and checks its answer; leaves no job. Gives the names back."""
    called: set[str] = set()

    async def call(name: str, *args: Any) -> list[Any]:
        called.add(name)
        await before_each()
        return await floor.call(name, *args)

    async def claim(count: int) -> list[Any]:
        called.add("claim")
        await before_each()
        jobs = await floor.claim()
        assert len(jobs) == count
        return jobs

    fresh = [
        *parcel("a", when="+5"),
        *parcel("b"),
        *parcel("c", "t", "high"),
        *parcel("d"),
        *parcel("e", "t"),
    ]
    assert await call("enqueue", floor.now, 1, 3, *fresh) == [5]
    floor.clock.advance(1)
    assert await call("promote", floor.now, 10, 3) == [1, 0]
    assert (await call("locate", "a", 10))[0] == b"ready"
    assert await call("idle", floor.now) == [0]
    jobs = {job.id: job for job in await claim(5)}
    assert await call("renew", floor.now, LEASE_MS, *(job.member for job in jobs.values())) == [5]
    assert await call("progress", jobs["a"].member, "a", "half", 1_000) == [b"noted"]
    assert await call("complete", *floor.end_args("complete", [jobs["a"]], 2), 0, 1_000, b"value") == [1]
    assert await call("retry", *floor.end_args("retry", [jobs["b"]], 3)) == [1]
    assert await call("bury", *floor.end_args("bury", [jobs["c"], jobs["d"]], 4)) == [2]
    assert await call("release", *floor.end_args("release", [jobs["e"]], 5)) == [1]
    assert await call("stale", "b", run_of(9)) == [1]
    assert await call("replay", floor.now, "c") == [1]
    assert await call("purge", floor.now, 1, 0, 0, "d") == [1]
    assert await call("cancel", "b", "", 1_000, 10) == [b"cancelled"]
    assert await call("promote", floor.now, 10, 3) == [2, 0]
    await claim(2)
    floor.clock.advance(LEASE_MS / 1000)
    assert await call("recover", floor.now, 10, 0, 0) == [2, 0, -1]
    for job_id in ("c", "e"):
        assert await call("cancel", job_id, "", 1_000, 10) == [b"cancelled"]
    assert await call("idle", floor.now) == [1]
    assert await call("repair", floor.now, 1, 100, 100, LEASE_MS, "e", "none", "") == [b"e", b"fine", b""]
    assert await call("recount", 1, 100, "t") == [b"t", 0, 0, 0, 0, 0, 0, b"", b"", 0]
    return called
