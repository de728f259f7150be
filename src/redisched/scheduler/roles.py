"""Runs all roles of a scheduler on one event loop and keeps them running through a lost store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from redisched.errors import StoreError, StoreUnavailable
from redisched.scheduler.promoter import Promoter
from redisched.scheduler.pruner import Pruner
from redisched.scheduler.recoverer import Recoverer
from redisched.scheduler.sweeper import Sweeper
from redisched.scheduler.ticker import Ticker
from redisched.settings import SchedulerSettings
from redisched.store import Store
from redisched.store.waiter import Waiter

log = logging.getLogger("redisched.scheduler")

PAUSE_S = 0.5


class Roles:
    def __init__(self, store: Store, settings: SchedulerSettings | None = None) -> None:
        self._store = store
        self._settings = settings or SchedulerSettings()
        self.promoters = [Promoter(store, shard, self._settings) for shard in range(store.shards)]
        self.tickers = [Ticker(store, shard, self._settings) for shard in range(store.shards)]

    async def run(self) -> None:
        """Until cancelled."""
        pruner = Pruner(self._store, self._settings)
        async with asyncio.TaskGroup() as group:
            for promoter in self.promoters:
                group.create_task(_for_ever("promoter", promoter.run))
            for ticker in self.tickers:
                group.create_task(_for_ever("ticker", ticker.run))
            for shard in range(self._store.shards):
                group.create_task(_for_ever("recoverer", Recoverer(self._store, shard, self._settings).run))
            group.create_task(_for_ever("pruner", pruner.run))
            group.create_task(_for_ever("sweeper", Sweeper(self._store, self._settings).run))
            group.create_task(_for_ever("alarms", self._listen))

    async def _listen(self) -> None:
        waiter = Waiter(self._store, "alarm")
        try:
            while True:
                for shard in await waiter.wait(self._settings.look_s):
                    self.promoters[shard].ring()
                    self.tickers[shard].ring()
        finally:
            await waiter.close()


async def _for_ever(name: str, run: Callable[[], Awaitable[None]]) -> None:
    """A role outlives whatever the store does: it says so and goes on."""
    while True:
        try:
            await run()
        except (StoreUnavailable, StoreError) as error:
            log.error("role interrupted", extra={"role": name, "error": str(error)})
        except Exception:
            # A bug of ours must not stop promotion for ever.
            log.exception("role failed, starting it again", extra={"role": name})
        await asyncio.sleep(PAUSE_S)
