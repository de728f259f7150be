"""Takes back jobs whose leases ended: their host is lost, or hangs. One for all shards."""

from __future__ import annotations

import asyncio
import logging

from redisched.settings import SchedulerSettings
from redisched.store import Store

log = logging.getLogger("redisched.scheduler")


SHORTEST_S = 0.01  # a lease that is renewed just as it ends must not make this loop spin


class Recoverer:
    def __init__(self, store: Store, settings: SchedulerSettings) -> None:
        self._store = store
        self._settings = settings
        self._next_ms = -1  # until the first lease ends, if nobody renews it; -1: nothing runs

    async def run(self) -> None:
        """Looks when the first lease ends, and once in a while for leases that were given meanwhile."""
        while True:
            if await self.run_once() == 0:
                longest_s = self._settings.recover_s
                sleep_s = longest_s if self._next_ms < 0 else min(self._next_ms / 1000, longest_s)
                await asyncio.sleep(max(sleep_s, SHORTEST_S))

    async def run_once(self) -> int:
        """At most one batch a shard; answers how many leases ended."""
        total = 0
        self._next_ms = -1
        for shard in range(self._store.shards):
            ended, buried, next_ms = await self._store.recover(shard, self._settings.batch)
            if next_ms >= 0:
                self._next_ms = next_ms if self._next_ms < 0 else min(self._next_ms, next_ms)
            if ended:
                log.warning("leases ended, jobs taken back", extra={"shard": shard, "jobs": ended, "buried": buried})
            total += ended
        return total
