"""Takes back jobs whose leases ended: their host is lost, or hangs. One a shard.

Looks when the first lease ends, by the script's own count, and once in a while for leases that were
given meanwhile. After an outage of the store the script gives an amnesty: leases went on ending while
nobody could renew them, and the living must have their turn before they are taken for dead.
"""

from __future__ import annotations

import asyncio
import logging

from redisched.settings import SchedulerSettings
from redisched.store import Store

log = logging.getLogger("redisched.scheduler")

GAP_MS = 250  # how much later than it should a look may come without meaning an outage
SHORTEST_S = 0.01  # a lease that is renewed just as it ends must not make this loop spin


class Recoverer:
    def __init__(self, store: Store, shard: int, settings: SchedulerSettings) -> None:
        self._store = store
        self._shard = shard
        self._settings = settings
        self.next_ms = -1  # until the first lease ends, if nobody renews it; -1: nothing runs

    async def run(self) -> None:
        while True:
            if await self.run_once() == 0:
                longest_s = self._settings.recover_s
                sleep_s = longest_s if self.next_ms < 0 else min(self.next_ms / 1000, longest_s)
                await asyncio.sleep(max(sleep_s, SHORTEST_S))

    async def run_once(self) -> int:
        """At most one batch; answers how many leases ended."""
        s = self._settings
        gap_ms, amnesty_ms = round(s.recover_s * 1000) + GAP_MS, round(s.amnesty_s * 1000)
        ended, buried, self.next_ms = await self._store.recover(self._shard, s.batch, gap_ms, amnesty_ms)
        if ended:
            facts = {"shard": self._shard, "jobs": ended, "buried": buried}
            log.warning("leases ended, jobs taken back", extra=facts)
        return ended
