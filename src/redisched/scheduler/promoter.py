"""Moves due jobs to their lanes: sleeps until the next one is due and is woken by an earlier one.

Two promoters on one shard are harmless: each due job is moved by whichever script runs first.
"""

from __future__ import annotations

from redisched.scheduler.looker import Looker
from redisched.settings import SchedulerSettings
from redisched.store import Store


class Promoter(Looker):
    def __init__(self, store: Store, shard: int, settings: SchedulerSettings) -> None:
        super().__init__(store, shard, settings)
        self.moved = 0

    async def run_once(self) -> int:
        """Moves at most one batch; answers how many."""
        moved, self.next_ms = await self._store.promote(self._shard, self._settings.batch)
        self.moved += moved
        return moved
