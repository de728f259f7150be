"""Coalesces enqueues: whoever waits at the same moment goes out in one script call a shard.

Called by `client.py`. While a call to a shard is on its way, further enqueues for it gather here and
leave together when it is answered: a quiet system sends one job at once, a busy one sends batches,
and nobody has to choose. Never holds a job back on a timer.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from redisched.errors import NotDurable, RedischedError
from redisched.settings import ClientSettings
from redisched.store import Store


class Parcel(NamedTuple):
    """A job on its way to the store."""

    id: str
    lane: str
    when: str  # ms since the epoch, or "+ms" from Redis' now
    record: bytes


class Outbox:
    def __init__(self, store: Store, settings: ClientSettings) -> None:
        self._store = store
        self._settings = settings
        self._caller = store.caller()
        self._waiting: dict[tuple[int, bool], list[tuple[Parcel, asyncio.Future[bool]]]] = {}
        self._senders: set[asyncio.Task[None]] = set()
        self._sends: set[asyncio.Future[None]] = set()

    async def send(self, shard: int, parcel: Parcel, *, replicated: bool) -> bool:
        """Stores one job. True: it is new; False: a job of that id lives already."""
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        queue = self._waiting.get((shard, replicated))
        if queue is not None:
            queue.append((parcel, future))
        else:
            self._waiting[shard, replicated] = [(parcel, future)]
            sender = asyncio.create_task(self._drain(shard, replicated))
            self._senders.add(sender)
            sender.add_done_callback(self._senders.discard)
        return await future

    async def send_many(
        self, shard: int, parcels: list[Parcel], *, replicated: bool
    ) -> tuple[list[Parcel], RedischedError | None]:
        """Stores many jobs of one shard, a batch after the other: those that are stored, and what stopped the rest."""
        under_way = asyncio.get_running_loop().create_future()
        self._sends.add(under_way)
        stored: list[Parcel] = []
        try:
            for start in range(0, len(parcels), self._settings.batch):
                batch = parcels[start : start + self._settings.batch]
                await self._send_batch(shard, batch, replicated)
                stored += batch
        except NotDurable as error:
            return stored + batch, error
        except RedischedError as error:
            return stored, error
        finally:
            under_way.set_result(None)
            self._sends.discard(under_way)
        return stored, None

    async def close(self) -> None:
        """Waits for what is on its way."""
        await asyncio.gather(*self._senders, *self._sends, return_exceptions=True)

    async def _drain(self, shard: int, replicated: bool) -> None:
        # Others that are about to call in this turn of the loop may still join.
        await asyncio.sleep(0)
        while batch := self._waiting[shard, replicated][: self._settings.batch]:
            del self._waiting[shard, replicated][: len(batch)]
            try:
                fresh = await self._send_batch(shard, [parcel for parcel, _ in batch], replicated)
            except BaseException as error:
                for _, future in batch:
                    if not future.done():
                        future.set_exception(error if isinstance(error, Exception) else asyncio.CancelledError())
                if not isinstance(error, Exception):
                    raise
            else:
                for (_, future), is_new in zip(batch, fresh, strict=True):
                    if not future.done():
                        future.set_result(is_new)
        del self._waiting[shard, replicated]

    async def _send_batch(self, shard: int, parcels: list[Parcel], replicated: bool) -> list[bool]:
        flat: list[str | bytes] = []
        for parcel in parcels:
            flat += parcel
        async with self._caller.turn(shard) as seq:
            if replicated:
                (_, *lived), confirmed = await self._store.enqueue_replicated(
                    shard,
                    seq,
                    self._caller,
                    flat,
                    self._settings.replicas,
                    round(self._settings.replica_timeout_s * 1000),
                )
                if confirmed < self._settings.replicas:
                    raise NotDurable(self._settings.replicas, confirmed)
            else:
                _, *lived = await self._store.enqueue(shard, seq, self._caller, flat)
        fresh = [True] * len(parcels)
        for index in lived:
            fresh[index] = False
        return fresh
