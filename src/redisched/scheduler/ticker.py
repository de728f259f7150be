"""Fires schedules: looks at those whose time has come, computes their next times, makes their occurrences.

What is read may be old when it is used, and any number of tickers may do the same at once: the script
fires a schedule only from where it was seen, so whoever comes second changes nothing. Next times are
computed here, because cron is Python; what depends on the store (overlap, pace) is decided there.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

from redisched.clock import mono_s
from redisched.plan import Standing, Step, backfill_step, next_step, open_plan
from redisched.scheduler.looker import Looker
from redisched.settings import SchedulerSettings
from redisched.store import Store
from redisched.store.plans import Seen

log = logging.getLogger("redisched.scheduler")

MOVED, MADE = 0, 1
LONGEST_S = 0.02  # of computing in one go
LARGE = 10  # a catch-up of so many missed occurrences in one look is worth a line
_POSTPONE = "x 0 0 0 0 0 0 0 0 0 s 0"


class Ticker(Looker):
    def __init__(self, store: Store, shard: int, settings: SchedulerSettings) -> None:
        super().__init__(store, shard, settings)
        self._caller = store.caller()
        self.made = 0

    async def run_once(self) -> int:
        """Looks at one batch of schedules; answers how many it moved on."""
        now_ms, self.next_ms, seen = await self._store.peek(self._shard, self._settings.batch)
        if not seen:
            return 0
        steps: list[Any] = []
        missed = late = 0
        begun_s = mono_s()
        for one in seen:
            if steps and mono_s() - begun_s > LONGEST_S:
                break  # the rest is still due; renewal and promotion run on this loop too
            step = self._add(one, now_ms, steps)
            if step is not None:
                missed += step.missed
                late += step.catch_ms == now_ms
        s = self._settings
        answers = await self._store.fire(self._shard, self._caller, (s.catch_up_factor, s.catch_up_per_hour), steps)
        if missed + late >= LARGE:
            facts = {"shard": self._shard, "schedules": late, "passed_over": missed}
            log.warning("occurrences were missed, catching up", extra=facts)
        counts = Counter(answers)
        self.made += counts[MADE]
        return len(answers) - counts[MOVED]

    def _add(self, seen: Seen, now_ms: int, steps: list[Any]) -> Step | None:
        try:
            standing = Standing.parse(seen.state)
            table = open_plan(seen.body)
            if seen.name.endswith(b"!"):
                step = backfill_step(table, standing, now_ms)
            else:
                step = next_step(table, standing, now_ms, seen.look_ms)
            record = table.record(step.occurrence_ms) if step.occurrence_ms else b""
        except Exception as error:
            # Any: a newer version or a foreign hand wrote it, or a part is missing. The others must go on meanwhile.
            name = seen.name.decode("utf-8", "backslashreplace")
            log.error("schedule cannot be read", extra={"schedule": name, "error": str(error)})
            steps += (seen.name, "", "", _POSTPONE)
            return None
        steps += (seen.name, table.lane, record, step.words)
        return step
