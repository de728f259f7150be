"""What `Cron`, `Every` and `RRule` share: their bounds, and how they are shown and stored. Floor 4, pure.

A rule is a frozen value. It knows no clock, no name and no tenant: a schedule has those. `max_runs` is
carried, not counted: how often a schedule has fired is the store's knowledge.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Final, Literal, get_args

from redisched.cron.zones import FOREVER_S
from redisched.errors import InvalidSchedule

Gap = Literal["run", "skip"]
Fold = Literal["first", "both"]

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST: Final = datetime.min.replace(tzinfo=UTC)
_LAST: Final = datetime.max.replace(tzinfo=UTC)
LAST_S: Final = (_LAST - EPOCH) // timedelta(seconds=1)
MAX_PREVIEW: Final = 100_000
_SECOND: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, repr=False)
class Rule(ABC):
    """When something happens: `next` and `preview` are all the engine asks for."""

    _: KW_ONLY
    start: datetime | None = None
    """No occurrence before it; one at this very instant counts."""
    end: datetime | None = None
    """No occurrence after it; one at this very instant counts."""
    max_runs: int | None = None
    """How many occurrences to make in all."""

    KIND: ClassVar[str]

    @abstractmethod
    def next(self, after: datetime) -> datetime | None:
        """The first occurrence later than `after`, in UTC; None when there is none any more."""

    @abstractmethod
    def describe(self) -> str:
        """The rule as an English sentence."""

    def preview(self, after: datetime, count: int) -> list[datetime]:
        """The next occurrences, at most `count` of them."""
        if not 0 <= count <= MAX_PREVIEW:
            raise InvalidSchedule(f"a preview shows 0 to {MAX_PREVIEW:,} times, not {count:,}")
        times: list[datetime] = []
        while len(times) < count:
            found = self.next(after)
            if found is None:
                break
            times.append(found)
            after = found
        return times

    def to_dict(self) -> dict[str, Any]:
        """The rule as JSON can hold it, for `schedule_from_dict`. Defaults are left out, the zone is not."""
        zone = {"tz": self.tz} if hasattr(self, "tz") else {}
        return {"kind": self.KIND} | {name: stored(value) for name, value in self._given().items()} | zone

    def __repr__(self) -> str:
        parts: list[str] = []
        for name, value in self._given().items():
            shown = f"{value!r}"
            if isinstance(value, datetime):
                shown = f"datetime.fromisoformat({stored(value)!r})"
            parts.append(shown if not parts else f"{name}={shown}")
        return f"{type(self).__name__}({', '.join(parts)})"

    def __reduce__(self) -> tuple[Any, ...]:
        # What is derived from the fields (masks, the zone with its lock) is made again, never copied.
        return functools.partial(type(self), **self._given()), ()

    def _given(self) -> dict[str, Any]:
        """What makes this rule differ from the defaults, in the order of the constructor."""
        own = [(field.kw_only is True, field.name, field.default) for field in fields(self) if field.init]
        own.sort(key=lambda each: each[0])
        return {name: getattr(self, name) for _, name, default in own if getattr(self, name) != default}

    def _check_bounds(self) -> None:
        for name in ("start", "end"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, aware(name, value))
        if self.start is not None and self.end is not None and self.end < self.start:
            raise InvalidSchedule(f"the end {stored(self.end)} is before the start {stored(self.start)}")
        if self.max_runs is not None and (
            not isinstance(self.max_runs, int) or isinstance(self.max_runs, bool) or self.max_runs < 1
        ):
            raise InvalidSchedule(f"max_runs is {self.max_runs!r}: give 1 or more, or None for no limit")

    def _check_fires(self) -> None:
        """With both bounds known, a rule that fits nothing between them is a mistake."""
        if self.start is not None and self.end is not None and self.next(self.start - _SECOND) is None:
            raise InvalidSchedule(
                f"{self!r} never fires: nothing lies between {stored(self.start)} and {stored(self.end)}"
            )

    def _bounds_words(self) -> str:
        words = ""
        if self.start is not None:
            words += f", from {stored(self.start)}"
        if self.end is not None:
            words += f", until {stored(self.end)}"
        if self.max_runs is not None:
            words += f", {self.max_runs:,} times in all" if self.max_runs > 1 else ", once in all"
        return words


def aware(name: str, value: object) -> datetime:
    """The instant in UTC. A time without a zone is refused: nobody can tell which instant it means."""
    if not isinstance(value, datetime):
        raise InvalidSchedule(f"{name} is {value!r}: give a datetime with a time zone")
    if value.utcoffset() is None:
        raise InvalidSchedule(f"{name} is {value.isoformat()}, without a time zone: add tzinfo=UTC or another")
    if value.tzinfo is UTC:
        return value
    try:
        return value.astimezone(UTC)
    except OverflowError:
        # The first and the last hours of the calendar: as far as it goes.
        return _LAST if value.year > 5_000 else _FIRST


def seconds(instant: datetime) -> int:
    """Whole seconds since 1970, rounded down."""
    since = instant - EPOCH
    return since.days * 86_400 + since.seconds


def window(start: datetime | None, end: datetime | None) -> tuple[int, int]:
    """The whole seconds that lie within both bounds."""
    low, high = -FOREVER_S, LAST_S
    if start is not None:
        low = seconds(start) + bool(start.microsecond)
    if end is not None:
        high = seconds(end)
    return low, high


def check_word(name: str, value: str, allowed: Any) -> None:
    """Refuses a word that a `Literal` does not list."""
    words = get_args(allowed)
    if value not in words:
        raise InvalidSchedule(f"{name} is {value!r}: it can be {' or '.join(map(repr, words))}")


def stored(value: Any) -> Any:
    """An instant as text, an interval as seconds; everything else as it is."""
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, timedelta):
        return value.total_seconds()
    return value
