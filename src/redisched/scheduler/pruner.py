"""Keeps what grows within its bounds: dead letters by count and age, members that left. One for all shards."""

from __future__ import annotations

import asyncio

from redisched.settings import SchedulerSettings
from redisched.store import Store

PERIOD_S = 30.0
_DAY_MS = 86_400_000


class Pruner:
    def __init__(self, store: Store, settings: SchedulerSettings) -> None:
        self._store = store
        self._settings = settings

    async def run(self) -> None:
        while True:
            if await self.run_once() == 0:
                await asyncio.sleep(PERIOD_S)

    async def run_once(self) -> int:
        """At most one batch a shard; answers how many dead letters went."""
        s = self._settings
        await self._store.forget_members()
        purged = 0
        for shard in range(self._store.shards):
            purged += await self._store.trim(shard, s.batch, s.dead_kept, s.dead_days * _DAY_MS)
        return purged
