"""What promoter and ticker share: look, do, and sleep until the next thing is due or somebody rings.

The script says how long to sleep, by Redis' clock; the sleep itself is a timer here, because a
blocking read's timeout is only as fine as the server's 100 ms housekeeping.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod

from redisched.settings import SchedulerSettings
from redisched.store import Store


class Looker(ABC):
    def __init__(self, store: Store, shard: int, settings: SchedulerSettings) -> None:
        self._store = store
        self._shard = shard
        self._settings = settings
        self._alarm = asyncio.Event()
        self.next_ms = -1  # until the next one is due; -1: nothing waits

    def ring(self) -> None:
        """Something is due earlier than we sleep."""
        self._alarm.set()

    async def run(self) -> None:
        while True:
            self._alarm.clear()
            if await self.run_once() == 0:
                await self._sleep()

    @abstractmethod
    async def run_once(self) -> int:
        """At most one batch; answers how many were moved, and sets `next_ms`."""

    async def _sleep(self) -> None:
        longest_s = self._settings.look_s
        sleep_s = longest_s if self.next_ms < 0 else min(self.next_ms / 1000, longest_s)
        try:
            async with asyncio.timeout(sleep_s):
                await self._alarm.wait()
        except TimeoutError:
            pass
