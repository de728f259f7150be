"""Plants every kind of broken state by raw commands: doctor must find it, --fix mend it, nothing be lost.

And the reverse: beside a busy system, where jobs move under its eyes, it must find nothing at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from redisched import Call, Scheduler, State
from redisched.clock import MovableClock
from redisched.doctor import Diagnosis, examine
from redisched.ids import random_name
from redisched.keys import ShardKeys
from tests.support.invariants import check_invariants
from tests.support.servers import ServerProcess, start_server

pytestmark = pytest.mark.anyio

LEASE_MS = 60_000


class Ward:
    """One shard with a job in every state, and hands to break it."""

    def __init__(self, sched: Scheduler) -> None:
        self.sched = sched
        self.store = sched.store
        self.keys: ShardKeys = sched.store.keys.shards[0]
        self.client: Any = sched.store.client
        self.ids: dict[str, str] = {}

    async def admit(self) -> None:
        """waiting, ready, running and dead jobs of tenant acme; none of them finished by anybody."""
        call: Call[Any] = Call("work", 1)
        for name in ("running", "dead"):
            self.ids[name] = (await self.sched.enqueue(call, tenant="acme")).id
        _, claimed = await self.store.claim(0, 2, LEASE_MS, "w1")
        assert [c.id for c in claimed] == [self.ids["running"], self.ids["dead"]]
        run = b"1 w1 0 1 failed 4\noops"
        await self.store.bury(0, self.store.caller(), [claimed[1].member, claimed[1].id, "oops", run])
        self.ids["ready"] = (await self.sched.enqueue(call, tenant="acme")).id
        self.ids["high"] = (await self.sched.enqueue(call, tenant="acme", priority="high")).id
        self.ids["waiting"] = (await self.sched.enqueue(call, tenant="acme", delay=3600)).id
        assert await check_invariants(self.store) == []

    async def lease(self) -> bytes:
        (member,) = await self.client.zrange(self.keys["leases"], 0, -1)
        return bytes(member)

    async def entry_of(self, key: str) -> bytes:
        ((entry, _),) = await self.client.xrange(key)
        return bytes(entry)

    async def examine(self, *, fix: bool = False) -> Diagnosis:
        return await examine(self.store, fix=fix)


@pytest.fixture(params=["fake", "valkey"])
async def ward(request: pytest.FixtureRequest, server_of: Callable[[str], ServerProcess]) -> AsyncIterator[Ward]:
    memory = request.param == "fake"
    url = "memory://" if memory else server_of(request.param).url
    clock = MovableClock() if memory else None
    async with Scheduler(url, namespace=f"d{random_name(8)}", shards=1, clock=clock) as sched:
        made = Ward(sched)
        await made.admit()
        yield made
        assert await check_invariants(made.store) == []


async def lost_from_due(w: Ward) -> None:
    await w.client.zrem(w.keys["due"], f"acme/{w.ids['waiting']}")


async def lost_from_lane(w: Ward) -> None:
    await w.client.xdel(w.keys.lane("acme"), await w.entry_of(w.keys.lane("acme")))


async def lost_lease(w: Ward) -> None:
    await w.client.zrem(w.keys["leases"], await w.lease())


async def lost_letter(w: Ward) -> None:
    await w.client.xdel(w.keys["dead"], await w.entry_of(w.keys["dead"]))


async def waits_and_is_ready(w: Ward) -> None:
    await w.client.zadd(w.keys["due"], {f"acme/{w.ids['ready']}": 5})


async def waits_and_runs(w: Ward) -> None:
    await w.client.zadd(w.keys["due"], {f"acme/{w.ids['running']}": 5})


async def ready_and_runs(w: Ward) -> None:
    await w.client.xadd(w.keys.lane("acme"), {"i": w.ids["running"]})


async def ready_twice(w: Ward) -> None:
    await w.client.xadd(w.keys.lane("acme"), {"i": w.ids["ready"]})


async def spilled_and_waits(w: Ward) -> None:
    await w.client.zadd(w.keys.overflow("acme"), {f"acme/{w.ids['waiting']}": 5})


async def leased_twice(w: Ward) -> None:
    await w.client.zadd(w.keys["leases"], {f"{w.ids['running']}#7@w0": 4_000_000_000_000})


async def dead_and_waits(w: Ward) -> None:
    await w.client.zadd(w.keys["due"], {f"acme/{w.ids['dead']}": 5})


async def two_letters(w: Ward) -> None:
    await w.client.xadd(w.keys["dead"], {"id": w.ids["dead"], "tenant": "acme", "error": "again"})


async def in_a_foreign_lane(w: Ward) -> None:
    await lost_from_lane(w)
    await w.client.xadd(w.keys.lane("other"), {"i": w.ids["ready"]})


async def due_under_a_foreign_lane(w: Ward) -> None:
    await lost_from_due(w)
    await w.client.zadd(w.keys["due"], {f"other/{w.ids['waiting']}": 5})


async def ghosts_everywhere(w: Ward) -> None:
    await w.client.zadd(w.keys["due"], {"acme/ghost1": 5, "no-slash": 6})
    await w.client.zadd(w.keys.overflow("acme:l"), {"acme:l/ghost2": 5})
    await w.client.xadd(w.keys.lane("nobody"), {"i": "ghost3"})
    await w.client.zadd(w.keys["leases"], {"ghost4#1@w": 5, "shapeless": 6})
    await w.client.xadd(w.keys["dead"], {"id": "ghost5", "tenant": "acme", "error": "x"})


async def endless_lease(w: Ward) -> None:
    await w.client.zadd(w.keys["leases"], {await w.lease(): 9e15})


async def infinite_lease(w: Ward) -> None:
    await w.client.zadd(w.keys["leases"], {await w.lease(): float("inf")})


async def wrong_tally(w: Ward) -> None:
    await w.client.hset(w.keys["tally"], mapping={"w acme": 7, "r nobody": 3})
    await w.client.hdel(w.keys["tally"], "d acme")


async def unmarked_lane(w: Ward) -> None:
    await w.client.hset(w.keys["ringed"], "acme", "n 0")


async def not_in_the_ring(w: Ward) -> None:
    await w.client.lrem(w.keys["ring"], 0, "acme")


async def twice_in_the_ring(w: Ward) -> None:
    await w.client.rpush(w.keys["ring"], "acme")


async def no_marks_at_all(w: Ward) -> None:
    await w.client.hdel(w.keys["ringed"], "acme")


PLANTED: list[tuple[Callable[[Ward], Awaitable[None]], str, dict[str, State]]] = [
    (lost_from_due, "nowhere", {}),
    (lost_from_lane, "nowhere", {"ready": State.WAITING}),
    (lost_lease, "nowhere", {"running": State.WAITING}),
    (lost_letter, "nowhere", {}),
    (waits_and_is_ready, "twice", {}),
    (waits_and_runs, "twice", {}),
    (ready_and_runs, "twice", {}),
    (ready_twice, "twice", {}),
    (spilled_and_waits, "twice", {}),
    (leased_twice, "twice", {}),
    (dead_and_waits, "twice", {}),
    (two_letters, "twice", {}),
    (in_a_foreign_lane, "astray", {"ready": State.WAITING}),
    (due_under_a_foreign_lane, "astray", {}),
    (ghosts_everywhere, "ghost", {}),
    (endless_lease, "endless", {}),
    (infinite_lease, "endless", {}),
    (wrong_tally, "tally", {}),
    (unmarked_lane, "marks", {}),
    (not_in_the_ring, "ring", {}),
    (twice_in_the_ring, "ring", {}),
    (no_marks_at_all, "marks", {}),
]
STATES = {
    "waiting": State.WAITING,
    "ready": State.READY,
    "high": State.READY,
    "running": State.RUNNING,
    "dead": State.DEAD,
}


@pytest.mark.parametrize(("plant", "kind", "moved"), PLANTED, ids=[p[0].__name__ for p in PLANTED])
async def test_a_planted_fault_is_found_fixed_and_costs_no_job(
    ward: Ward, plant: Callable[[Ward], Awaitable[None]], kind: str, moved: dict[str, State]
) -> None:
    records = await ward.client.hkeys(ward.keys["jobs"])
    await plant(ward)

    seen = await ward.examine()
    assert seen.counts[kind] > 0, seen.findings
    assert seen.remaining == seen.counts.total()
    assert all(f.text and not f.fixed for f in seen.findings)
    again = await ward.examine()
    assert again.counts == seen.counts, "looking changes nothing"

    fixed = await ward.examine(fix=True)
    assert fixed.remaining == 0, fixed.findings
    assert fixed.counts[kind] == seen.counts[kind]

    assert (await ward.examine()).counts == {}
    assert sorted(await ward.client.hkeys(ward.keys["jobs"])) == sorted(records), "no record goes"
    for name, state in (STATES | moved).items():
        view = await ward.sched.inspector.job(ward.ids[name], "acme")
        assert view.state is state, name


async def test_the_younger_of_two_leases_stays(ward: Ward) -> None:
    member = await ward.lease()
    await leased_twice(ward)
    await ward.examine(fix=True)
    assert await ward.lease() == member


async def test_an_unreadable_record_is_reported_and_left_alone(ward: Ward) -> None:
    await ward.client.hset(ward.keys["jobs"], "scribble", b"not a record")
    found = await ward.examine(fix=True)
    assert [(f.kind, f.fixed) for f in found.findings] == [("unreadable", "")]
    assert found.remaining == 1
    assert await ward.client.hget(ward.keys["jobs"], "scribble") == b"not a record"
    await ward.client.hdel(ward.keys["jobs"], "scribble")


async def test_many_faults_at_once_are_all_mended_in_bounded_steps(ward: Ward) -> None:
    jobs = await ward.sched.enqueue_many([Call("work", n) for n in range(700)], tenant="acme", delay=3600)
    for job in jobs:
        await ward.client.zrem(ward.keys["due"], f"acme/{job.id}")
    found = await ward.examine(fix=True)
    assert found.counts["nowhere"] == 700
    assert found.remaining == 0
    assert await ward.client.zcard(ward.keys["due"]) == 701


async def test_a_full_server_can_be_repaired(tmp_path: Any) -> None:
    server = start_server("valkey", tmp_path / "full")
    async with Scheduler(server.url, shards=1) as sched:
        ward = Ward(sched)
        await ward.admit()
        await lost_from_lane(ward)
        server.command("CONFIG", "SET", "maxmemory", "1")
        found = await ward.examine(fix=True)
        assert found.remaining == 0
        server.command("CONFIG", "SET", "maxmemory", "0")
        assert await check_invariants(ward.store) == []
    server.stop()


async def test_a_healthy_busy_system_yields_no_finding(server_of: Callable[[str], ServerProcess]) -> None:
    """Jobs are made, promoted, claimed, retried, cancelled and ended while doctor walks, again and again."""
    url, space = server_of("valkey").url, f"d{random_name(8)}"
    async with Scheduler(url, namespace=space, shards=2) as sched:

        @sched.job(name="work")
        async def work(n: int) -> None:
            await asyncio.sleep(0.001)
            if n % 7 == 0:
                raise ValueError(n)

        busy = True

        async def feed() -> None:
            while busy:
                for tenant in ("a", "b", "default", "c"):
                    jobs = await sched.enqueue_many([work(n) for n in range(60)], tenant=tenant, delay=0.02)
                    await sched.enqueue_many([work(n) for n in range(60)], tenant=tenant, priority="high")
                    await jobs[0].cancel()
                await asyncio.sleep(0.01)

        async def labour() -> None:
            while busy:
                await sched.run_until_idle()

        tasks = [asyncio.create_task(feed()), asyncio.create_task(labour()), asyncio.create_task(labour())]
        suspects = looked = 0
        try:
            for n in range(25):
                seen = await examine(sched.store, fix=n % 2 == 1)
                assert seen.findings == []
                suspects += seen.suspects
                looked += seen.records
        finally:
            busy = False
            await asyncio.gather(*tasks)
        assert looked > 0
        # Without suspects the second look was never needed: then this test tried nothing.
        assert suspects > 0
        assert await check_invariants(sched.store) == []
