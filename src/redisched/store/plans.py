"""The store's calls for schedules: one method a script. A part of `Store`, in a file of its own."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

from redisched.store.caller import Caller
from redisched.store.link import Link


class Seen(NamedTuple):
    """A schedule as `peek` saw it."""

    name: bytes
    look_ms: int
    state: bytes
    body: bytes


def _ms(score: bytes) -> int:
    """A score of a foreign hand may be anything."""
    value = float(score)
    return int(value) if math.isfinite(value) else 0


class PlanCalls(Link):
    @abstractmethod
    async def call(self, name: str, shard: int, *args: Any, caller: Caller | None = None) -> list[Any]: ...

    async def schedule(
        self,
        shard: int,
        caller: Caller,
        quota: int,
        others: int,
        wanted: Sequence[Any],
        *,
        keeps_history: bool = False,
    ) -> list[int]:
        """`wanted`: plan, version seen, body, mode, cursor and look of each. Answers the new version of each; 0: over
        the quota; -1 - v: it is at version v instead. `keeps_history`: as much of it as before."""
        kept: tuple[int | str, int] = (self.settings.history_runs, self.settings.history_days * 86_400_000)
        if keeps_history:
            kept = ("=", 0)
        async with caller.turn(shard) as seq:
            args = (self.now_ms(), seq, quota, others, *kept, *wanted)
            return await self.call("schedule", shard, *args, caller=caller)

    async def unschedule(self, shard: int, caller: Caller, name: str) -> bool:
        async with caller.turn(shard) as seq:
            (was,) = await self.call("unschedule", shard, seq, name, caller=caller)
        return bool(was)

    async def backfill(self, shard: int, caller: Caller, name: str, first: int, last: int, count: int) -> int:
        """1: begun, or stopped when `first` is 0; 0: nothing there; -1: another one is under way."""
        async with caller.turn(shard) as seq:
            args = (self.now_ms(), seq, name, first, last, count)
            (answer,) = await self.call("backfill", shard, *args, caller=caller)
        return int(answer)

    async def peek(self, shard: int, limit: int) -> tuple[int, int, list[Seen]]:
        """Now, ms until the next schedule is due (-1: none), and those that are due."""
        now_ms, next_ms, *rows = await self.call("peek", shard, self.now_ms(), limit)
        seen = [Seen(rows[n], _ms(rows[n + 1]), *rows[n + 2 : n + 4]) for n in range(0, len(rows), 4)]
        return now_ms, next_ms, seen

    async def fire(
        self, shard: int, caller: Caller, pace: tuple[int, int], steps: Sequence[Any], *, numbered: bool = False
    ) -> list[int]:
        """`steps`: plan, lane, record and words of each (see `plan/steps.py`). Cursors protect a schedule's own
        firing against repetition; what has none is `numbered`."""
        if not numbered:
            args = (self.now_ms(), 0, self.settings.lane_bound, *pace, *steps)
            return await self.call("fire", shard, *args, caller=caller)
        async with caller.turn(shard) as seq:
            args = (self.now_ms(), seq, self.settings.lane_bound, *pace, *steps)
            return await self.call("fire", shard, *args, caller=caller)

    async def heal(self, shard: int, wrong: Sequence[Any]) -> int:
        """`wrong`: plan, state as seen, state as it should be and look of each. Answers how many were still so."""
        (healed,) = await self.call("heal", shard, self.now_ms(), *wrong)
        return int(healed)

    async def begin_sweep(self, shard: int, zones: str, period_s: float) -> bool:
        """Whether it is time to walk a shard's schedules: nobody did with these zones for a while."""
        key = self.keys.shards[shard]["swept"]
        last = await self.read(lambda: self.client.get(key))
        if last is not None and last.decode() == zones:
            return False
        await self.read(lambda: self.client.set(key, zones, px=round(period_s * 1000)))
        return True

    async def clock_ms(self) -> int:
        """The time that decides: Redis', or the test's."""
        if self.clock is not None:
            return self.clock.now_ms()
        seconds, micros = await self.read(self.client.time)
        return int(seconds) * 1000 + int(micros) // 1000
