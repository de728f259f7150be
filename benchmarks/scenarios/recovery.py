"""kill -9 of a worker process with 200 running jobs: how long until all of them run again, and what is lost."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import Any

from benchmarks.app import sleep
from benchmarks.harness import Bench, Stamps

JOBS, LEASE_S = 200, 10.0


async def run(bench: Bench) -> dict[str, Any]:
    sched = bench.scheduler()
    async with sched:
        return {
            "process_killed": await _process_killed(bench, sched),
            "host_killed": await _host_killed(bench, sched),
        }


async def _process_killed(bench: Bench, sched: Any) -> dict[str, Any]:
    """One of two processes dies, both full; the supervisor lives."""
    stamps = bench.stamps(2 * JOBS)
    options = ("--processes", "2", "--concurrency", str(JOBS))
    with bench.workers(*options, file=stamps.path) as host:
        await host.ready(sched, 2)
        jobs = await sched.enqueue_many([sleep(n, 5.0) for n in range(2 * JOBS)])
        await _until(lambda: stamps.started() == 2 * JOBS)
        killed = time.time()
        os.kill(host.children()[0], signal.SIGKILL)
        return await _again(sched, stamps, jobs, killed)


async def _host_killed(bench: Bench, sched: Any) -> dict[str, Any]:
    """Supervisor and process die; another host takes over when the leases end."""
    stamps = bench.stamps(JOBS)
    options = ("--concurrency", str(JOBS), "--lease", str(LEASE_S))
    with bench.workers(*options, file=stamps.path) as first, bench.workers(*options, file=stamps.path) as second:
        await first.ready(sched)
        os.kill(second.pid, signal.SIGSTOP)
        for pid in second.children():
            os.kill(pid, signal.SIGSTOP)
        jobs = await sched.enqueue_many([sleep(n, 3.0) for n in range(JOBS)])
        await _until(lambda: stamps.started() == JOBS)
        killed = time.time()
        for pid in (*first.children(), first.pid):
            os.kill(pid, signal.SIGKILL)
        for pid in (second.pid, *second.children()):
            os.kill(pid, signal.SIGCONT)
        return await _again(sched, stamps, jobs, killed) | {"lease_s": LEASE_S}


async def _again(sched: Any, stamps: Stamps, jobs: list[Any], killed: float) -> dict[str, Any]:
    """Waits for the end of all jobs; tells when those that were interrupted ran again."""
    await asyncio.wait_for(asyncio.gather(*(job.result() for job in jobs)), 60)
    starts = [stamps.get(n) for n in range(stamps.count)]
    again = [at - killed for count, at in starts if count > 1]
    totals = (await sched.stats()).totals
    return {
        "jobs": stamps.count,
        "interrupted": len(again),
        "running_again_after_s": round(max(again, default=0.0), 3),
        "lost": stamps.count - sum(count >= 1 for count, _ in starts),
        "started_more_than_twice": sum(count > 2 for count, _ in starts),
        "dead": totals.get("buried", 0),
    }


async def _until(condition: Any) -> None:
    while not condition():
        await asyncio.sleep(0.01)
