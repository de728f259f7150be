"""`Cron`, `Every` and `RRule`: the pure values that say when a schedule fires. Floor 4.

The engine asks `next`, at dispatch, with the nominal time; the CLI and the API ask `preview`. `docs/cron.md`
says what an expression means. A value that cannot fire is refused when it is made. Nothing here reads
a clock or talks to Redis.

`Cron.next` is the scheduler's hot path: an expression is bit masks, a month is one mask of days, and a
zone is a sorted list of changes, so an answer takes a few shifts and one bisection.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from datetime import date, datetime, timedelta
from typing import Any, ClassVar, Final

from redisched.cron import cron_words
from redisched.cron import fields as cron_fields
from redisched.cron.every import Every
from redisched.cron.rrule import RRule
from redisched.cron.rule import (
    EPOCH,
    LAST_S,
    Fold,
    Gap,
    Rule,
    aware,
    check_word,
    seconds,
    window,
)
from redisched.cron.tzif import DAY_S, EPOCH_ORDINAL
from redisched.cron.zones import TODAY_S, Zone, next_instant, zone
from redisched.errors import InvalidSchedule

_FIRST_WALL_S: Final = (1 - EPOCH_ORDINAL) * DAY_S
_LAST_ORDINAL: Final = date.max.toordinal()
_MONTH_DAYS: Final = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


class Matcher:
    """Finds an expression's next wall time. Wall times are seconds since 1970 as if they were UTC."""

    __slots__ = ("first_s", "hour", "masks", "minute", "month", "second")

    def __init__(self, fields: cron_fields.Fields) -> None:
        self.second = fields.second
        self.minute = fields.minute
        self.hour = fields.hour
        self.month = fields.month
        self.masks = fields.masks
        self.first_s = (_low(self.hour) * 60 + _low(self.minute)) * 60 + _low(self.second)

    def first(self, wall: int) -> int | None:
        """The earliest match at or after `wall`; None beyond the year 9999."""
        day, rest = divmod(max(wall, _FIRST_WALL_S), DAY_S)
        if day + EPOCH_ORDINAL > _LAST_ORDINAL:
            return None
        today = date.fromordinal(day + EPOCH_ORDINAL)
        year, month, number = today.year, today.month, today.day
        start = day - number + 1
        if self.month >> month & 1:
            days = self.masks[7 * (_length(year, month) - 28) + (start + EPOCH_ORDINAL) % 7] >> number
            if days & 1:
                time = self._time(rest)
                if time is not None:
                    return day * DAY_S + time
            days >>= 1
            if days:
                return (day + (days & -days).bit_length()) * DAY_S + self.first_s
        return self._later_month(year, month, start)

    def _later_month(self, year: int, month: int, start: int) -> int | None:
        # The longest wait is 40 years: a 29 February on a given weekday, across a year such as 2100.
        for _ in range(12 * 41):
            start += _length(year, month)
            month += 1
            if month == 13:
                month = 1
                year += 1
                if year > 9999:
                    return None
            if self.month >> month & 1:
                days = self.masks[7 * (_length(year, month) - 28) + (start + EPOCH_ORDINAL) % 7]
                if days:
                    return (start + (days & -days).bit_length() - 2) * DAY_S + self.first_s
        return None

    def _time(self, rest: int) -> int | None:
        """The earliest matching time of day at or after `rest`, both in seconds."""
        minute, second = divmod(rest, 60)
        hour, minute = divmod(minute, 60)
        if self.hour >> hour & 1:
            if self.minute >> minute & 1:
                left = self.second >> second
                if left:
                    return rest + (left & -left).bit_length() - 1
            left = self.minute >> minute + 1
            if left:
                return (hour * 60 + minute + (left & -left).bit_length()) * 60 + _low(self.second)
        left = self.hour >> hour + 1
        if left:
            return (hour + (left & -left).bit_length()) * 3_600 + self.first_s % 3_600
        return None


@dataclass(frozen=True, slots=True, repr=False)
class Cron(Rule):
    """A cron expression in a time zone: `Cron("0 9 * * 1", tz="America/New_York")`.

    `gap`: what a fixed time does when the clocks jump over it: "run" once right after, or "skip".
    `fold`: whether a fixed time that the clocks show twice fires at the "first" or at "both".
    """

    KIND: ClassVar[str] = "cron"

    expr: str
    tz: str = "UTC"
    _: KW_ONLY
    seconds: bool = False
    gap: Gap = "run"
    fold: Fold = "first"
    _fields: cron_fields.Fields = field(init=False, compare=False)
    _matcher: Matcher = field(init=False, compare=False)
    _zone: Zone = field(init=False, compare=False)
    _window: tuple[int, int] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.expr, str):
            raise InvalidSchedule(f"cron expression {self.expr!r}: give a text such as '0 9 * * 1'")
        check_word("gap", self.gap, Gap)
        check_word("fold", self.fold, Fold)
        self._check_bounds()
        fields = cron_fields.parse(self.expr, bool(self.seconds))
        put = object.__setattr__
        put(self, "expr", " ".join(self.expr.split()))
        put(self, "_fields", fields)
        put(self, "_matcher", Matcher(fields))
        put(self, "_zone", zone(self.tz))
        put(self, "_window", window(self.start, self.end))
        loses_gaps = fields.wild or self.gap == "skip"
        if loses_gaps and self._zone.changes_yearly and self._find(TODAY_S) is None:
            raise InvalidSchedule(
                f"cron expression {self.expr!r} never fires in {self.tz}: the clocks there jump over each of its times"
            )
        self._check_fires()

    def next(self, after: datetime) -> datetime | None:
        """The first occurrence later than `after`, in UTC; None when there is none any more."""
        low, high = self._window
        found = self._find(max(seconds(aware("after", after)) + 1, low))
        if found is None or found > high:
            return None
        return EPOCH + timedelta(seconds=found)

    def _find(self, instant: int) -> int | None:
        wild = self._fields.wild
        found = next_instant(
            self._zone,
            instant,
            self._matcher.first,
            hide_folds=not wild and self.fold == "first",
            fill_gaps=not wild and self.gap == "run",
        )
        return found if found is None or found <= LAST_S else None

    def describe(self) -> str:
        """The expression as an English sentence."""
        return f"{cron_words.sentence(self._fields)}, {self.tz} time{self._bounds_words()}."


def schedule_from_dict(stored: dict[str, Any]) -> Cron | Every | RRule:
    """The rule that `to_dict` stored. `InvalidSchedule` when it is not one."""
    kinds: dict[str, type[Cron | Every | RRule]] = {"cron": Cron, "every": Every, "rrule": RRule}
    values = dict(stored) if isinstance(stored, dict) else {}
    kind = kinds.get(str(values.pop("kind", None)))
    if kind is None:
        raise InvalidSchedule(f"a stored schedule has a 'kind' of cron, every or rrule: {stored!r}")
    try:
        for name in ("start", "end", "anchor", "dtstart"):
            if isinstance(values.get(name), str):
                values[name] = datetime.fromisoformat(values[name])
        if kind is Every and isinstance(values.get("interval"), (int, float)):
            values["interval"] = timedelta(seconds=values["interval"])
        return kind(**values)
    except InvalidSchedule:
        raise
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidSchedule(f"not a stored {kind.KIND} schedule: {error}") from error


def _length(year: int, month: int) -> int:
    if month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0):
        return 29
    return _MONTH_DAYS[month]


def _low(mask: int) -> int:
    return (mask & -mask).bit_length() - 1
