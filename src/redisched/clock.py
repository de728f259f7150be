"""Time, in its two kinds. Floor 1: imports nothing of ours.

Wall time is stored and shown; monotonic time measures. Neither decides anything in the
store: scripts read Redis' own clock (invariant 2). The one exception is a `MovableClock`,
which a test hands to a scheduler so that tomorrow's retry can run today.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAST_MS = 253_370_764_800_000  # 9999-01-01: what a datetime can still show in every zone


def wall_ms() -> int:
    """Milliseconds since the epoch by this machine's clock: for run records and logs, never for decisions."""
    return time.time_ns() // 1_000_000


def mono_s() -> float:
    """Seconds of a clock that never goes back: for timeouts and durations."""
    return time.monotonic()


def to_ms(moment: datetime) -> int:
    """Milliseconds since the epoch. The caller has checked that `moment` is aware."""
    # In whole microseconds, because a float of seconds loses some past 2255; up, because a job is never early.
    micros = (moment - EPOCH) // timedelta(microseconds=1)
    return -(-micros // 1000)


def from_ms(ms: int) -> datetime:
    try:
        return EPOCH + timedelta(milliseconds=ms)
    except OverflowError:  # a score of a foreign hand must not break a listing
        return datetime.max.replace(tzinfo=UTC)


def delta_ms(delta: timedelta) -> int:
    return round(delta.total_seconds() * 1000)


class MovableClock:
    """A clock that stands still until it is told to move. The scripts get it as their `now_ms`."""

    def __init__(self, start: datetime | None = None) -> None:
        self._ms = to_ms(start) if start is not None else wall_ms()

    def now_ms(self) -> int:
        return self._ms

    def now(self) -> datetime:
        return from_ms(self._ms)

    def advance(self, by: timedelta | float) -> None:
        """Moves on by a timedelta or by seconds. A clock that goes back is a bug in the test."""
        step_ms = delta_ms(by) if isinstance(by, timedelta) else round(by * 1000)
        if step_ms < 0:
            raise ValueError(f"a movable clock only moves forward, not by {by!r}")
        self._ms += step_ms

    def set(self, moment: datetime) -> None:
        """Moves to an instant that is not earlier than now."""
        self.advance(timedelta(milliseconds=to_ms(moment) - self._ms))
