"""Claims jobs when there is room, from every shard that may have some. Hands them to the runner.

A claim asks only for what can start now, plus, while handlers are quick, one more helping, so the
next batch is on its way while this one runs. Slow handlers get nothing ahead: a slow worker does
not sit on work that others could do. With nothing to claim it sleeps on the bells, and looks at
all shards at least once a second, because a bell is a hint.
"""

from __future__ import annotations

import asyncio
import logging

from redisched.errors import StoreError, StoreUnavailable
from redisched.settings import WorkerSettings
from redisched.store import Store
from redisched.store.waiter import Waiter
from redisched.worker.ledger import Ledger
from redisched.worker.runner import Runner

log = logging.getLogger("redisched.worker")

LOOK_S = 1.0


class Fetcher:
    def __init__(self, store: Store, settings: WorkerSettings, runner: Runner, ledger: Ledger, worker: str) -> None:
        self._store = store
        self._settings = settings
        self._runner = runner
        self._ledger = ledger
        self._worker = worker
        self._room = asyncio.Event()
        self._all = tuple(range(store.shards))
        self._turn = 0
        self._stopping = False
        self._sleeping: asyncio.Future[tuple[int, ...]] | None = None
        runner.on_room = self._room.set

    def freed(self) -> None:
        """The ledger has a free slot again."""
        self._room.set()

    def stop(self) -> None:
        """Ends `run()` after the claim that is on its way, if there is one."""
        self._stopping = True
        self._room.set()
        if self._sleeping is not None:
            self._sleeping.cancel()

    async def run(self) -> None:
        """Claims until stopped."""
        waiter = Waiter(self._store, "bell")
        ask = self._all
        try:
            while True:
                await self._wait_for_room()
                if self._stopping:
                    return
                try:
                    _, ask = await self.run_once(ask)
                except (StoreUnavailable, StoreError) as error:
                    log.error("cannot claim", extra={"error": str(error)})
                    await asyncio.sleep(LOOK_S)
                    ask = self._all
                    continue
                if not ask and not self._stopping:
                    ask = await self._sleep(waiter) or self._all
        finally:
            await waiter.close()

    async def _sleep(self, waiter: Waiter) -> tuple[int, ...]:
        self._sleeping = asyncio.ensure_future(waiter.wait(LOOK_S))
        try:
            return await self._sleeping
        except asyncio.CancelledError:
            if not self._stopping:
                raise
            return ()
        finally:
            self._sleeping = None

    async def run_once(self, ask: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
        """One claim from each shard of `ask`: how many jobs came, and which shards have more."""
        want = self.room()
        if want <= 0 or not ask:
            return 0, ask
        # With less room than shards, each gets its turn to be asked first.
        self._turn += 1
        start = self._turn % len(ask)
        order = (ask[start:] + ask[:start])[:want]
        share = max(1, min(self._settings.batch, want // len(order)))
        answers = await asyncio.gather(*(self._claim(shard, share) for shard in order))
        more = [shard for shard, (left, _) in zip(order, answers, strict=True) if left]
        skipped = [shard for shard in ask if shard not in order]
        return sum(count for _, count in answers), (*more, *skipped)

    async def _claim(self, shard: int, limit: int) -> tuple[int, int]:
        left, jobs = await self._store.claim(shard, limit, self._settings.lease_ms, self._worker)
        if jobs:
            self._runner.accept(jobs)
        return left, len(jobs)

    def room(self) -> int:
        """How many jobs may be claimed now."""
        runner, most = self._runner, self._settings.concurrency
        allowed = 2 * most if runner.is_quick else most
        return min(allowed - runner.in_hand, self._ledger.room)

    async def _wait_for_room(self) -> None:
        while not self._stopping and (self._runner.stuck or self.room() < self._least()):
            self._room.clear()
            await self._room.wait()

    def _least(self) -> int:
        """Room worth asking for. While work is in hand, a claim of a quarter is cheaper than four of a sixteenth."""
        if self._runner.is_quick and self._runner.in_hand:
            return max(1, self._settings.concurrency // 2)
        return 1
