"""Numbered calls, so that sending one twice is harmless (see `lua/lib/once.lua`).

A caller owns a name and, for each shard, a counter and a lock: its calls to a shard go out one
after the other, and a repetition carries the number of the call it repeats. Whoever changes
state through the store (a client, a worker process, a supervisor) has a caller of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from redisched.ids import random_name


class Caller:
    def __init__(self, shards: int) -> None:
        self.name = random_name(12)
        self._locks = [asyncio.Lock() for _ in range(shards)]
        self._last = [0] * shards

    @asynccontextmanager
    async def turn(self, shard: int) -> AsyncIterator[int]:
        """The number of the next call to a shard, once the one before has been answered.

        A turn that ends in an error uses up its number all the same: whether the server saw the
        call is unknown, and a later call under the same number would be taken for its repetition.
        """
        async with self._locks[shard]:
            self._last[shard] += 1
            yield self._last[shard]
