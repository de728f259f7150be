"""Time, in its two kinds. Floor 1: imports nothing of ours.

Wall time is stored and shown; monotonic time measures. Neither decides anything in the
store: scripts read Redis' own clock (invariant 2). The one exception is a `MovableClock`,
which a test hands to a scheduler so that tomorrow's retry can run today.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta


def wall_ms() -> int:
    """Milliseconds since the epoch by this machine's clock: for run records and logs, never for decisions."""
    return time.time_ns() // 1_000_000


def mono_s() -> float:
    """Seconds of a clock that never goes back: for timeouts and durations."""
    return time.monotonic()


def to_ms(moment: datetime) -> int:
    """Milliseconds since the epoch. The caller has checked that `moment` is aware."""
    # round, not truncate: 0.001 s has no exact float, and a job must never be early by that
    return round(moment.timestamp() * 1000)


def from_ms(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, tz=UTC)


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
