"""Takes back jobs whose leases ended: their host is lost, or hangs. One for all shards."""

from __future__ import annotations

import asyncio
import logging

from redisched.settings import SchedulerSettings
from redisched.store import Store

log = logging.getLogger("redisched.scheduler")


class Recoverer:
    def __init__(self, store: Store, settings: SchedulerSettings) -> None:
        self._store = store
        self._settings = settings

    async def run(self) -> None:
        while True:
            if await self.run_once() == 0:
                await asyncio.sleep(self._settings.recover_s)

    async def run_once(self) -> int:
        """At most one batch a shard; answers how many leases ended."""
        total = 0
        for shard in range(self._store.shards):
            ended, buried, _ = await self._store.recover(shard, self._settings.batch)
            if ended:
                log.warning("leases ended, jobs taken back", extra={"shard": shard, "jobs": ended, "buried": buried})
            total += ended
        return total
