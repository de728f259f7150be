"""A worker for the time of one call, in the caller's process: for tests and scripts.

Steps the same roles that the real processes run, so a test sees what production does: promote,
claim, run, acknowledge, until nothing is due. Nothing sleeps on bells; with a movable clock, time
stands still meanwhile.
"""

from __future__ import annotations

import asyncio

from redisched.clock import mono_s
from redisched.ids import random_name
from redisched.registry import Registry
from redisched.scheduler import Ticker
from redisched.settings import SchedulerSettings, WorkerSettings
from redisched.store import Store
from redisched.worker.ledger import Ledger, slots_for
from redisched.worker.process import Worker
from redisched.worker.renewer import Renewer

BATCH = 500


async def run_until_idle(store: Store, registry: Registry, settings: WorkerSettings, timeout_s: float) -> int:
    """Runs all that is due; answers how many runs ended. Raises TimeoutError when that takes too long."""
    ledger = Ledger(slots_for(settings.concurrency, settings.batch))
    worker = Worker(store, registry, settings, ledger, "inline-" + random_name(4))
    give_up = mono_s() + timeout_s
    shards = tuple(range(store.shards))
    tickers = [Ticker(store, shard, SchedulerSettings()) for shard in shards]
    await worker.open()
    renewing = asyncio.create_task(Renewer(store, settings.lease_ms, lambda: [ledger]).run())
    try:
        while True:
            moved = 0
            for shard in shards:
                moved += (await store.recover(shard, BATCH))[0]
                moved += await tickers[shard].run_once()
                moved += (await store.promote(shard, BATCH))[0]
            claimed, _ = await worker.fetcher.run_once(shards)
            while worker.runner.running:
                if mono_s() > give_up:
                    names = sorted({r.handler.name for r in worker.runner.running.values()})
                    raise TimeoutError(f"still running after {timeout_s:g} s: {', '.join(names)}")
                await asyncio.sleep(0.001)
            await worker.finisher.flush()
            if not moved and not claimed:
                return worker.finisher.ended
    finally:
        renewing.cancel()
        await worker.drain(0)
        await worker.close()
        ledger.close()
