"""What a next time costs the scheduler: 1,000 distinct expressions over 20 zones, in CPU time a call.

Each expression is followed for some occurrences from the present of 2026 on, as the ticker does, so days,
months, changes of the clock and rare dates are met as often as they come. The target is 15 us.
"""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime

from redisched.cron import Cron

TARGET_US = 15.0
SEED = 20_260_101
EXPRESSIONS = 1_000
CALLS_EACH = 100
ZONES = (
    "UTC",
    "America/New_York",
    "America/Los_Angeles",
    "America/Sao_Paulo",
    "America/Santiago",
    "America/Havana",
    "America/St_Johns",
    "Europe/London",
    "Europe/Berlin",
    "Europe/Dublin",
    "Africa/Cairo",
    "Africa/Casablanca",
    "Asia/Kolkata",
    "Asia/Tokyo",
    "Asia/Jerusalem",
    "Asia/Beirut",
    "Australia/Lord_Howe",
    "Australia/Sydney",
    "Pacific/Chatham",
    "Antarctica/Troll",
)


def expressions(count: int, rng: random.Random) -> list[str]:
    """Distinct expressions of the kinds that people write."""
    found: dict[str, None] = {}
    while len(found) < count:
        minute = rng.choice(["*", "*/5", "*/15", "0", "0,30", str(rng.randrange(60)), f"{rng.randrange(30)}-45/5"])
        hour = rng.choice(["*", "*/2", "0", "9-17", str(rng.randrange(24)), f"{rng.randrange(12)},22"])
        days = rng.choice(
            ["* {m} *", "* {m} 1-5", "* {m} {w}", "{d} {m} *", "L {m} *", "* {m} {w}#{k}", "1,15 {m} {w}"]
        )
        month = rng.choice(["*", "*", "*", "*/3", str(rng.randrange(1, 13))])
        day = days.format(m=month, w=rng.randrange(7), d=rng.randrange(1, 29), k=rng.randrange(1, 5))
        found[f"{minute} {hour} {day}"] = None
    return list(found)


def run() -> dict[str, object]:
    """The figures of one run, in microseconds of CPU time."""
    rng = random.Random(SEED)
    texts = expressions(EXPRESSIONS, rng)
    started = time.process_time()
    crons = [Cron(text, tz=ZONES[n % len(ZONES)]) for n, text in enumerate(texts)]
    made_us = (time.process_time() - started) / len(crons) * 1e6
    calls = 0
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    started = time.process_time()
    for cron in crons:
        at: datetime | None = begin
        for _ in range(CALLS_EACH):
            assert at is not None
            at = cron.next(at)
            calls += 1
    next_us = (time.process_time() - started) / calls * 1e6
    return {
        "scenario": "cron_next",
        "seed": SEED,
        "expressions": len(texts),
        "zones": len(ZONES),
        "calls": calls,
        "next_us": round(next_us, 2),
        "construct_us": round(made_us, 2),
        "target_us": TARGET_US,
        "ok": next_us <= TARGET_US,
    }


if __name__ == "__main__":
    print(run())
