"""200,000 jobs of 20 tenants, 100-byte payloads, all due at one instant: what they cost and how fast they go."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from benchmarks.app import noop
from benchmarks.harness import Bench, Cpu

JOBS, TENANTS, CONCURRENT = 200_000, 20, 1_000
PAYLOAD = "x" * 88  # 100 bytes of packed arguments


async def run(bench: Bench) -> dict[str, Any]:
    sched = bench.scheduler()
    async with sched:
        return {**await _enqueue(bench, sched), **await _concurrent(bench, sched), **await _drain(bench, sched)}


async def _enqueue(bench: Bench, sched: Any) -> dict[str, Any]:
    """Stores the jobs, far in the future, and weighs them."""
    before = (await sched.store.client.info("memory"))["used_memory"]
    cpu, cpu_client, start = Cpu(server=bench.server_pid), time.process_time(), time.perf_counter()
    due = datetime.now(UTC) + timedelta(seconds=40)
    for tenant in range(TENANTS):
        calls = [noop(PAYLOAD) for _ in range(JOBS // TENANTS)]
        await sched.enqueue_many(calls, tenant=f"t{tenant:02}", at=due)
    taken_s = time.perf_counter() - start
    bench.due = due  # type: ignore[attr-defined]
    after = (await sched.store.client.info("memory"))["used_memory"]
    return {
        "enqueue_many_per_s": round(JOBS / taken_s),
        "enqueue_many_cpu_us": cpu.us_a_job(JOBS)
        | {"client": round((time.process_time() - cpu_client) * 1e6 / JOBS, 2)},
        "bytes_a_waiting_job": round((after - before) / JOBS, 1),
    }


async def _concurrent(bench: Bench, sched: Any) -> dict[str, Any]:
    """1,000 tasks that each `await sched.enqueue(...)` in a loop."""
    jobs = 50_000

    async def one() -> None:
        for _ in range(jobs // CONCURRENT):
            await sched.enqueue(noop(PAYLOAD), tenant="t00", delay=3600)

    cpu, start = Cpu(server=bench.server_pid), time.perf_counter()
    await asyncio.gather(*(one() for _ in range(CONCURRENT)))
    taken_s = time.perf_counter() - start
    return {"concurrent_enqueue_per_s": round(jobs / taken_s), "concurrent_enqueue_cpu_us": cpu.us_a_job(jobs)}


async def _drain(bench: Bench, sched: Any) -> dict[str, Any]:
    """One worker process, from the due instant to the last acknowledgement."""
    with bench.workers("--processes", "1") as host:
        await host.ready(sched)
        done_before = await _done(sched)
        due_s = bench.due.timestamp()  # type: ignore[attr-defined]
        await asyncio.sleep(max(0.0, due_s - time.time() - 0.2))
        (child,) = host.children()
        cpu = Cpu(server=bench.server_pid, worker=child, supervisor=host.pid)
        await asyncio.sleep(max(0.0, due_s - time.time()))
        while await _done(sched) - done_before < JOBS:
            await asyncio.sleep(0.02)
        taken_s = time.time() - due_s
        return {
            "jobs": JOBS,
            "drain_s": round(taken_s, 3),
            "drain_per_s": round(JOBS / taken_s),
            "drain_cpu_us": cpu.us_a_job(JOBS),
        }


async def _done(sched: Any) -> int:
    """Finished jobs, without the cost of whole stats in the middle of a measurement."""
    totals = [await sched.store.client.hget(keys["totals"], "done") for keys in sched.store.keys.shards]
    return sum(int(total or 0) for total in totals)
