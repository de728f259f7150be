"""A walk through every script, for tests of what is common to all: a fresh server, a flushed cache, one slot.

Used by `tests/lua`. A script that the walk leaves out is found by the test that compares the two lists.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from tests.support.floor import LEASE_MS, MINUTE_MS, PLAN, Floor, parcel, run_of


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
    assert await call("complete", *floor.end_args("complete", [jobs["a"]], 2, 1), 0, 1_000, b"value") == [1]
    assert await call("retry", *floor.end_args("retry", [jobs["b"]], 3)) == [1]
    assert await call("bury", *floor.end_args("bury", [jobs["c"], jobs["d"]], 4)) == [2]
    assert await call("release", *floor.end_args("release", [jobs["e"]], 5)) == [1]
    assert await call("stale", floor.now, "b", run_of(9)) == [1]
    assert await call("replay", floor.now, "c") == [1]
    assert await call("purge", floor.now, 1, 0, 0, "d") == [1]
    assert await call("cancel", floor.now, "b", "", 1_000, 10) == [b"cancelled"]
    assert await call("promote", floor.now, 10, 3) == [2, 0]
    await claim(2)
    floor.clock.advance(LEASE_MS / 1000)
    assert await call("recover", floor.now, 10, 0, 0) == [2, 0, -1]
    for job_id in ("c", "e"):
        assert await call("cancel", floor.now, job_id, "", 1_000, 10) == [b"cancelled"]
    assert await call("idle", floor.now) == [1]
    assert await call("repair", floor.now, 1, 100, 100, LEASE_MS, "e", "none", "") == [b"e", b"fine", b""]
    assert await call("recount", 1, 100, "t") == [b"t", 0, 0, 0, 0, 0, 0, b"", b"", 0]
    await _walk_plans(floor, call)
    return called


async def _walk_plans(floor: Floor, call: Callable[..., Awaitable[list[Any]]]) -> None:
    first = floor.now
    assert await call("schedule", *floor.plan_args(PLAN)) == [1]
    now, next_ms, name, _, state, body = await call("peek", floor.now, 10)
    assert (now, next_ms, name, body) == (first, -1, PLAN.encode(), b"\xffbody")
    assert await call("fire", floor.now, 11, 3, 2, 60, *await floor.step()) == [1]
    assert await call("heal", floor.now, PLAN, state, "=", floor.now) == [0], "it has moved on"
    assert await call("backfill", floor.now, 12, PLAN, first - 2 * MINUTE_MS, first, 2) == [1]
    late = await floor.step(f"{PLAN}!", catch_ms=floor.now, overlap="c")
    assert await call("fire", floor.now, 0, 3, 2, 60, *late) == [1], "in the place of the one before it"
    assert await call("backfill", floor.now, 13, PLAN, 0, 0, 0) == [1]
    (job,) = await floor.claim()
    assert await call("bury", *floor.end_args("bury", [job], 14)) == [1]
    assert await call("purge", floor.now, 1, 0, 0, job.id) == [1]
    assert await call("unschedule", 99, PLAN) == [1]
