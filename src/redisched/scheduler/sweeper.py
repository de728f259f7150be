"""Finds schedules whose next time is missing or impossible, puts them right and says so. One for all shards.

A half-restored backup, a foreign hand, another edition of the time zones: whatever made it, a schedule
that nobody looks at any more would never be missed. Walks all schedules once in a while, one scheduler
at a time; at once when the zone data of this host is another than that of the last walk.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

from redisched.cron.zones import tzdata_version
from redisched.errors import InvalidSchedule, PayloadUndecodable
from redisched.keys import ShardKeys
from redisched.plan import Mode, Standing, Timetable, open_plan
from redisched.settings import SchedulerSettings
from redisched.store import Store

log = logging.getLogger("redisched.scheduler")

STEP = 500
LATE_MS = 1_000  # a look so much later than it should be is wrong
WAIT_MS = 120_000  # twice what `lua/lib/plan.lua` lets a held schedule wait
AHEAD_MS = 3_600_000  # less can be a clock that went back a little: what was made must not be made again
TURN_MS = 14 * 86_400_000
PAUSE_S = 0.05  # between two batches: a million schedules are walked in minutes, and nobody notices


@dataclass(frozen=True, slots=True)
class Flaw:
    """What is wrong with a schedule, and how it should be; without a state, nobody can tell how."""

    name: str
    why: str
    seen: bytes = b""
    state: str = ""
    look_ms: int = 0
    key: bytes = b""  # the name as it is stored

    @property
    def plan(self) -> bytes:
        """Its schedule's name, also when this is about a backfill."""
        return self.key.removesuffix(b"!")


class Sweeper:
    def __init__(self, store: Store, settings: SchedulerSettings) -> None:
        self._store = store
        self._settings = settings

    async def run(self) -> None:
        while True:
            await self.run_once()
            await asyncio.sleep(self._settings.sweep_s / 4)

    async def run_once(self) -> int:
        """Walks the shards whose last walk is long ago; answers how many schedules were put right."""
        healed = 0
        for shard in range(self._store.shards):
            if await self._store.begin_sweep(shard, tzdata_version(), self._settings.sweep_s):
                healed += await self.sweep(shard)
        return healed

    async def sweep(self, shard: int) -> int:
        """One whole shard, whoever did so before."""
        healed = 0
        async for flaws in find_flaws(self._store, shard):
            for flaw in flaws:
                log.warning("schedule is broken", extra={"schedule": flaw.name, "why": flaw.why})
                healed += await heal(self._store, shard, flaw)
            await asyncio.sleep(PAUSE_S)
        if healed:
            log.warning("schedules were put right", extra={"shard": shard, "schedules": healed})
        return healed


async def heal(store: Store, shard: int, flaw: Flaw) -> bool:
    """Puts one schedule right, if it is still as it was seen and anybody can tell how it should be."""
    return bool(flaw.state) and await store.heal(shard, (flaw.key, flaw.seen, flaw.state, flaw.look_ms)) == 1


async def find_flaws(store: Store, shard: int) -> AsyncIterator[list[Flaw]]:
    """Walks all schedules of a shard, a batch a step, and yields what is wrong with each batch."""
    keys, client = store.keys.shards[shard], store.client
    cursor = 0
    while True:
        cursor, bodies = await store.read(lambda at=cursor: client.hscan(keys["plan"], at, count=STEP))  # type: ignore[misc]
        if bodies:
            # State and look are two reads, and a schedule may fire in between: what looks wrong is looked at again.
            suspects = await _look(store, keys, bodies)
            yield await _look(store, keys, {s.plan: bodies[s.plan] for s in suspects}) if suspects else []
        if cursor == 0:
            return


async def _look(store: Store, keys: ShardKeys, bodies: dict[bytes, bytes]) -> list[Flaw]:
    names, client = list(bodies), store.client
    backfills = [name + b"!" for name in names]
    states = await store.read(lambda: client.hmget(keys["planned"], names + backfills))
    scores = await store.read(lambda: client.zmscore(keys["plans"], names + backfills))
    now_ms = await store.clock_ms()
    flaws = []
    for name, state, score in zip(backfills, states[len(names) :], scores[len(names) :], strict=True):
        if state is not None and score is None:
            shown = name.decode("utf-8", "replace")
            flaws.append(Flaw(shown, "its backfill stands still: nobody looks at it", state, "=", now_ms, name))
    for name, state, score in zip(names, states, scores, strict=False):
        try:
            flaw = judge(open_plan(bodies[name]), state, score, now_ms)
        except (PayloadUndecodable, InvalidSchedule) as error:
            flaw = Flaw(name.decode("utf-8", "replace"), f"it cannot be read: {error}")
        if flaw is not None:
            flaws.append(replace(flaw, key=name))
    return flaws


def judge(table: Timetable, state: bytes | None, score: float | None, now_ms: int) -> Flaw | None:
    """What is wrong with one schedule, if anything."""
    try:
        standing = Standing.parse(state or b"")
    except PayloadUndecodable:
        fresh = Standing(version=1, cursor_ms=table.next_ms(now_ms), keep_ms=90 * 86_400_000)
        return _flaw(table, state, fresh, "its state is missing or unreadable")
    if standing.mode in (Mode.PAUSED, Mode.ENDED):
        return None
    if standing.mode in (Mode.RUNNING, Mode.RAN):
        if score is None or score > now_ms + WAIT_MS:
            return Flaw(table.name, "nobody looks at it", state or b"", str(standing), now_ms)
        return None
    cursor = standing.cursor_ms
    if not table.counts_from_completion and cursor > now_ms:
        expected = table.next_ms(now_ms)
        moved = replace(standing, cursor_ms=expected)
        if table.next_ms(cursor - 1) != cursor:
            return _flaw(table, state, moved, "its next time does not fit its rule and zone (other zone data?)")
        if cursor - expected > AHEAD_MS:
            return _flaw(table, state, moved, "its next time is not the next one (did the server's clock jump?)")
    if score is None:
        return _flaw(table, state, standing, "it is enabled, but nobody looks at it")
    latest_ms = {Mode.HELD: now_ms + WAIT_MS, Mode.TURN: now_ms + TURN_MS}.get(standing.mode)
    if latest_ms is None:
        latest_ms = max(table.look_ms(cursor), now_ms) + LATE_MS if cursor else now_ms + LATE_MS
    if not score <= latest_ms:  # also when it is no number
        return _flaw(table, state, standing, "it is looked at later than its next time")
    return None


def _flaw(table: Timetable, state: bytes | None, standing: Standing, why: str) -> Flaw:
    if not standing.cursor_ms:
        standing = replace(standing, mode=Mode.ENDED)
    look_ms = table.look_ms(standing.cursor_ms) if standing.cursor_ms else 0
    return Flaw(table.name, why, state or b"", str(standing), look_ms)
