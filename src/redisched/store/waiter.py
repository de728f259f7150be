"""Sleeps on the wake-up lists of all shards: bells for workers, alarms for schedulers.

On one server a single blocking read covers every shard; on a cluster each shard needs its own, as
their keys live in different slots. Reads block for less than the socket timeout. A wake-up
that is lost with a connection costs its sleeper at most the time it asked to sleep.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from redis import exceptions as rex

from redisched.store.link import PASSING
from redisched.store.store import Store


class Waiter:
    def __init__(self, store: Store, kind: str) -> None:
        self._store = store
        self._shard_of = {keys[kind].encode(): keys.shard for keys in store.keys.shards}
        self._reads: dict[asyncio.Task[Any], tuple[bytes, ...]] = {}

    async def wait(self, timeout_s: float) -> tuple[int, ...]:
        """The shards that rang within `timeout_s`; none: time passed. Never raises for a lost connection."""
        groups = [(key,) for key in self._shard_of] if self._store.is_cluster else [tuple(self._shard_of)]
        busy = set(self._reads.values())
        for group in groups:
            if group not in busy:
                read = asyncio.create_task(self._store.client.blpop(list(group), timeout=timeout_s))
                self._reads[read] = group
        done, _ = await asyncio.wait(self._reads, return_when=asyncio.FIRST_COMPLETED)
        rang = []
        for read in done:
            del self._reads[read]
            try:
                answer = read.result()
            except (rex.RedisError, *PASSING) as error:
                self._store.note_away(error)
                await asyncio.sleep(min(timeout_s, 0.2))
                continue
            if answer is not None:
                rang.append(self._shard_of[answer[0]])
        return tuple(rang)

    async def close(self) -> None:
        reads, self._reads = list(self._reads), {}
        for read in reads:
            read.cancel()
        with contextlib.suppress(Exception):
            await asyncio.gather(*reads, return_exceptions=True)
