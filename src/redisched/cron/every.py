"""`Every`: a fixed interval. Floor 4, pure.

Intervals are elapsed time, so summer time does not touch them. Times are whole milliseconds, because an
occurrence's id is its nominal time in milliseconds.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from datetime import datetime, timedelta
from typing import ClassVar, Final, Literal

from redisched.cron.rule import EPOCH, Rule, aware, check_word, stored
from redisched.errors import InvalidSchedule

After = Literal["dispatch", "completion"]

MAX_INTERVAL: Final = timedelta(days=36_525)
_MS: Final = timedelta(milliseconds=1)
_US: Final = timedelta(microseconds=1)
_UNITS: Final = {"day": 86_400_000, "hour": 3_600_000, "minute": 60_000, "second": 1_000, "millisecond": 1}


@dataclass(frozen=True, slots=True, repr=False)
class Every(Rule):
    """Every so often: `Every(timedelta(minutes=10))`.

    With an `anchor` (or else a `start`) the times are that instant plus whole intervals, whoever asks and
    whenever. The anchor sets only the phase: times before it count too. With neither, the next time
    is one interval after the one asked for. `after="completion"` counts from the end of a run, so runs
    drift and never pile up; it goes with no anchor.
    """

    KIND: ClassVar[str] = "every"

    interval: timedelta
    _: KW_ONLY
    anchor: datetime | None = None
    after: After = "dispatch"

    def __post_init__(self) -> None:
        if not isinstance(self.interval, timedelta):
            raise InvalidSchedule(f"interval is {self.interval!r}: give a timedelta(minutes=10) or the like")
        if not _MS <= self.interval <= MAX_INTERVAL or self.interval % _MS:
            raise InvalidSchedule(
                f"interval is {self.interval}: give whole milliseconds, more than 0 and at most 100 years"
            )
        check_word("after", self.after, After)
        self._check_bounds()
        if self.anchor is not None:
            if self.after == "completion":
                raise InvalidSchedule("anchor does not go with after='completion', which has no fixed phase")
            object.__setattr__(self, "anchor", aware("anchor", self.anchor))
        self._check_fires()

    def next(self, after: datetime) -> datetime | None:
        """The first time later than `after`, in UTC; None when there is none any more."""
        after = aware("after", after)
        if self.start is not None and after < self.start and self.after == "completion":
            return self._bounded(_ceil(self.start))
        if self.start is not None:
            after = max(after, self.start - _US)
        phase = self.anchor or self.start
        since = after - EPOCH
        if phase is None or self.after == "completion":
            due = since - since % _MS + self.interval
        else:
            first = _ceil(phase)
            due = first + ((since - first) // self.interval + 1) * self.interval
        return self._bounded(due)

    def anchored(self, at: datetime) -> Every:
        """The same with its phase fixed at `at`, if nothing fixes it yet: what a registration stores."""
        if self.anchor is not None or self.start is not None or self.after == "completion":
            return self
        return replace(self, anchor=aware("anchor", at))

    def describe(self) -> str:
        """The interval as an English sentence."""
        left = self.interval // _MS
        parts = []
        for unit, size in _UNITS.items():
            count, left = divmod(left, size)
            if count:
                parts.append(f"{count:,} {unit}{'s' if count > 1 else ''}")
        words = f"Every {' '.join(parts)}"
        if len(parts) == 1 and parts[0].startswith("1 "):
            words = f"Every {parts[0][2:]}"
        if self.after == "completion":
            words += " after the end of the run before"
        if self.anchor is not None:
            words += f", in step with {stored(self.anchor)}"
        return f"{words}{self._bounds_words()}."

    def _bounded(self, due: timedelta) -> datetime | None:
        try:
            found = EPOCH + due
        except OverflowError:
            return None
        return None if self.end is not None and found > self.end else found


def _ceil(instant: datetime) -> timedelta:
    """Since 1970, rounded up to a millisecond."""
    since = instant - EPOCH
    return since + (-since) % _MS
