"""Sends outcomes back: done, retry, bury, release; in batches, a call a shard and verb.

Whatever ends in one turn of the loop leaves together; while a call is on its way, more gather. An
outcome the store refuses as stale (the lease was lost meanwhile) is recorded as a stale run and
otherwise dropped: the job belongs to somebody else. Never decides an outcome; `runner.py` does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from redisched import codec
from redisched.errors import StoreError, StoreUnavailable
from redisched.keys import decode_tenant
from redisched.model import Claimed, Outcome
from redisched.store import Store
from redisched.worker.ledger import Ledger

log = logging.getLogger("redisched.worker")

BATCH = 500


@dataclass(slots=True)
class Held:
    """A claimed job in this process, from its claim to the answer to its outcome."""

    job: Claimed
    slot: int
    taken_s: float = 0.0
    tenant: str = ""  # as the store spells it
    name: str = ""
    attempt: int = 1
    started_ms: int = 0
    ended_ms: int = 0

    def facts(self) -> dict[str, Any]:
        """What a log line says of it."""
        tenant = decode_tenant(self.tenant)
        return {"job": self.job.id, "handler": self.name, "tenant": tenant, "attempt": self.attempt}

    def stale_run(self, worker: str) -> bytes:
        return codec.encode_run(self.attempt, worker, self.started_ms, self.ended_ms, Outcome.STALE, "")


@dataclass(slots=True)
class _Pending:
    """What waits to be sent to one shard."""

    done: list[tuple[Held, int, bytes, bytes, int]] = field(default_factory=list)  # as `complete` takes them
    retry: list[tuple[Held, tuple[Any, ...]]] = field(default_factory=list)
    bury: list[tuple[Held, tuple[Any, ...]]] = field(default_factory=list)
    release: list[tuple[Held, tuple[Any, ...]]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.done or self.retry or self.bury or self.release)


class Finisher:
    def __init__(
        self, store: Store, ledger: Ledger, worker: str, unknown_limit: int, on_freed: Callable[[], None]
    ) -> None:
        self._store = store
        self._ledger = ledger
        self._worker = worker
        self._unknown_limit = unknown_limit
        self._on_freed = on_freed
        self._caller = store.caller()
        self._pending = [_Pending() for _ in range(store.shards)]
        self._sending: set[int] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._giving_up = False
        self.ended = 0  # outcomes the store has taken or refused
        self.stale = 0

    def complete(self, held: Held, keep_ms: int = 0, result: bytes = b"", run: bytes = b"", size: int = 0) -> None:
        """`run` and the result's `size`: of an occurrence, for its schedule's history."""
        self._pending[held.job.shard].done.append((held, keep_ms, result, run, size))
        self._wake(held.job.shard)

    def retry(self, held: Held, counted: bool, max_attempts: int, delay_ms: int, run: bytes) -> None:
        args = (int(counted), max_attempts, delay_ms, run)
        self._pending[held.job.shard].retry.append((held, args))
        self._wake(held.job.shard)

    def bury(self, held: Held, reason: str, run: bytes) -> None:
        self._pending[held.job.shard].bury.append((held, (reason[:500].encode("utf-8", "backslashreplace"), run)))
        self._wake(held.job.shard)

    def release(self, held: Held, why: str, delay_ms: int = 0) -> None:
        self._pending[held.job.shard].release.append((held, (why, delay_ms)))
        self._wake(held.job.shard)

    def drop(self, held: Held) -> None:
        """The lease is known to be lost: nothing to send but the stale run."""
        self._ledger.free(held.slot)
        self._count_stale([held])
        self._on_freed()

    def give_up(self) -> None:
        """This process ends: an outcome that cannot be delivered in one more try comes back with its lease."""
        self._giving_up = True

    async def flush(self) -> None:
        """Waits until everything handed in so far has been answered."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _wake(self, shard: int) -> None:
        if shard not in self._sending:
            self._sending.add(shard)
            self._background(self._send_all(shard))

    def _background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send_all(self, shard: int) -> None:
        # The rest of this turn of the loop may add more: a turn in which fifty handlers end is one call.
        await asyncio.sleep(0)
        pending = self._pending[shard]
        while pending:
            self._pending[shard], batch = _Pending(), pending
            for send, items in (
                (self._send_done, batch.done),
                (self._send_retry, batch.retry),
                (self._send_bury, batch.bury),
                (self._send_release, batch.release),
            ):
                for start in range(0, len(items), BATCH):
                    await self._send(shard, send, items[start : start + BATCH])
            pending = self._pending[shard]
        # Here, not in a done callback: an outcome handed in between the last look and the callback
        # would find a sender that sends no more, and wait for ever.
        self._sending.discard(shard)

    async def _send(self, shard: int, send: Callable[..., Any], items: list[Any]) -> None:
        stale = await self._deliver(shard, send, items)
        late = [items[index][0] for index in stale]
        if late:
            self._count_stale(late)
        for item in items:
            self._ledger.free(item[0].slot)
        self.ended += len(items)
        self._on_freed()

    async def _deliver(self, shard: int, send: Callable[..., Any], items: list[Any]) -> list[int]:
        """Answers who was stale. While the store is away nobody else can take these jobs either: keep the outcomes."""
        while True:
            facts: dict[str, Any] = {"shard": shard, "jobs": len(items)}
            try:
                answer: list[int] = await send(shard, items)
                return answer
            except StoreUnavailable as error:
                facts["error"] = str(error)
                if not self._giving_up:
                    log.warning("outcomes wait for the store", extra=facts)
                    continue
            except StoreError as error:
                facts["error"] = str(error)
            except Exception as error:
                # A bug of ours costs these jobs another run, not the shard its outcomes.
                facts["error"] = repr(error)
            # Unknown here; the lease decides. Renewals stop with the slots, so the jobs come back.
            log.error("outcomes not delivered", extra=facts)
            return []

    async def _send_done(self, shard: int, items: list[tuple[Held, int, bytes, bytes, int]]) -> list[int]:
        results: list[Any] = []
        occurrences: list[Any] = []
        for index, (_, keep_ms, result, run, size) in enumerate(items):
            if keep_ms:
                results += (index, keep_ms, result)
            if run:
                occurrences += (index, run, size)
        jobs = [item[0].job for item in items]
        members, ids, tenants = [j.member for j in jobs], [j.id for j in jobs], [i[0].tenant for i in items]
        return await self._store.complete(shard, self._caller, members, ids, tenants, results, occurrences)

    async def _send_retry(self, shard: int, items: list[tuple[Held, tuple[Any, ...]]]) -> list[int]:
        return await self._store.retry(shard, self._caller, _flat(items))

    async def _send_bury(self, shard: int, items: list[tuple[Held, tuple[Any, ...]]]) -> list[int]:
        return await self._store.bury(shard, self._caller, _flat(items))

    async def _send_release(self, shard: int, items: list[tuple[Held, tuple[Any, ...]]]) -> list[int]:
        return await self._store.release(shard, self._caller, self._unknown_limit, _flat(items))

    def _count_stale(self, late: list[Held]) -> None:
        self.stale += len(late)
        by_shard: dict[int, list[Any]] = {}
        for held in late:
            log.warning("lease lost, outcome dropped", extra=held.facts())
            by_shard.setdefault(held.job.shard, []).extend((held.job.id, held.stale_run(self._worker)))
        for shard, flat in by_shard.items():
            self._background(self._record_stale(shard, flat))

    async def _record_stale(self, shard: int, flat: list[Any]) -> None:
        try:
            await self._store.stale(shard, flat)
        except (StoreUnavailable, StoreError) as error:
            log.warning("stale runs not recorded", extra={"shard": shard, "error": str(error)})


def _flat(items: list[tuple[Held, tuple[Any, ...]]]) -> list[Any]:
    flat: list[Any] = []
    for held, args in items:
        flat += (held.job.member, held.job.id, *args)
    return flat
