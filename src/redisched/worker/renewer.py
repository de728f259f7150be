"""Keeps leases alive from ledgers. Runs in the supervisor, or beside an in-process worker.

Looks four times a lease, and renews every lease that is older than one such period. One that the store does
not know any more is marked LOST in its ledger; its process sees that and cancels the handler.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from redisched.clock import mono_s
from redisched.errors import StoreError, StoreUnavailable
from redisched.store import Store
from redisched.worker.ledger import LOST, Entry, Ledger

log = logging.getLogger("redisched.worker")

BATCH = 1_000


class Renewer:
    def __init__(self, store: Store, lease_ms: int, ledgers: Callable[[], Iterable[Ledger]]) -> None:
        self._store = store
        self._lease_ms = lease_ms
        self._ledgers = ledgers

    @property
    def period_s(self) -> float:
        return self._lease_ms / 4000

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self.period_s)
            try:
                await self.run_once()
            except (StoreUnavailable, StoreError) as error:
                # Nothing is marked: as long as the store is away nobody else can take these jobs either.
                log.error("leases not renewed", extra={"error": str(error)})
            except Exception:
                # A bug of ours must not let every lease of this host end.
                log.exception("renewal failed, going on")

    async def run_once(self) -> int:
        """Renews every lease older than a period; answers how many were lost."""
        old = mono_s() - self.period_s
        by_shard: dict[int, list[tuple[Ledger, Entry]]] = {}
        for ledger in self._ledgers():
            for entry in ledger.entries():
                if entry.state != LOST and entry.since <= old:
                    by_shard.setdefault(entry.shard, []).append((ledger, entry))
        lost = 0
        for shard, entries in by_shard.items():
            for start in range(0, len(entries), BATCH):
                part = entries[start : start + BATCH]
                for index in await self._store.renew(shard, self._lease_ms, [e.member for _, e in part]):
                    ledger, entry = part[index]
                    ledger.mark_lost(entry)
                    lost += 1
        return lost
