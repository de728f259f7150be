"""How late jobs start: enqueued on an idle system, and delayed ones at 500 a second."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Any

from benchmarks.app import stamp
from benchmarks.harness import Bench, Cpu, Stamps, percentiles

IDLE_JOBS, RATE, SECONDS, LEAD_S = 300, 500, 10, 3.0


async def run(bench: Bench) -> dict[str, Any]:
    sched = bench.scheduler()
    delayed = RATE * SECONDS
    stamps = bench.stamps(IDLE_JOBS + delayed)
    async with sched:
        with bench.workers("--processes", "1", file=stamps.path) as host:
            await host.ready(sched)
            polls_before = await _polls(sched)
            await asyncio.sleep(5)
            polls = (await _polls(sched) - polls_before) / 5
            idle = await _idle(sched, stamps)
            (child,) = host.children()
            cpu = Cpu(server=bench.server_pid, worker=child, supervisor=host.pid)
            late = await _delayed(sched, stamps)
            return {
                "idle_enqueue_to_start": percentiles(idle) | {"jobs": len(idle)},
                "delayed_500_per_s_lateness": percentiles(late) | {"jobs": len(late)},
                "delayed_cpu_us": cpu.us_a_job(delayed),
                "idle_calls_per_s": round(polls, 1),
            }


async def _idle(sched: Any, stamps: Stamps) -> list[float]:
    taken = []
    for index in range(IDLE_JOBS):
        before = time.time()
        await sched.enqueue(stamp(index))
        while not stamps.get(index)[0]:
            await asyncio.sleep(0.001)
        taken.append(stamps.get(index)[1] - before)
        await asyncio.sleep(0.01)
    return taken


async def _delayed(sched: Any, stamps: Stamps) -> list[float]:
    """Each is enqueued `LEAD_S` before its time, 500 a second, as they would come in real life."""
    begin = time.time() + 0.5
    due: dict[int, float] = {}
    for n in range(RATE * SECONDS):
        at = begin + n / RATE
        if (pause := at - time.time()) > 0.002:
            await asyncio.sleep(pause)
        # whole milliseconds, as the store keeps them
        due[IDLE_JOBS + n] = round((at + LEAD_S) * 1000) / 1000
        when = datetime.fromtimestamp(due[IDLE_JOBS + n], UTC)
        await sched.enqueue(stamp(IDLE_JOBS + n), at=when)
    last = max(due.values())
    while time.time() < last + 1 or not all(stamps.get(index)[0] for index in due):
        await asyncio.sleep(0.05)
    return [stamps.get(index)[1] - at for index, at in due.items()]


async def _polls(sched: Any) -> int:
    """Calls that clients made: scripts and blocking reads, not the commands inside scripts."""
    found = await sched.store.client.info("commandstats")
    return sum(int(found.get(f"cmdstat_{name}", {}).get("calls", 0)) for name in ("evalsha", "blpop"))
