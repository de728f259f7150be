"""`RRule`: a recurrence rule of RFC 5545 in a time zone. Floor 4, pure.

A rule is expanded as wall time, period by period (day, week, month or year), and carried through gaps
and folds by `zones.next_instant`, as a fixed cron time is. `dtstart` sets the phase and the defaults; it is
an occurrence only if it fits the rule. Every search looks at a bounded number of days.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import ClassVar, Final

from redisched.cron import rrule_parts, rrule_words
from redisched.cron.rrule_parts import Parts
from redisched.cron.rule import EPOCH, LAST_S, Fold, Gap, Rule, aware, check_word, seconds, window
from redisched.cron.tzif import DAY_S, EPOCH_ORDINAL
from redisched.cron.zones import Zone, next_instant, zone
from redisched.errors import InvalidSchedule

# Days a search looks at before it gives up: 160 years of a rule that allows every month.
MAX_DAYS: Final = 60_000
MAX_PERIODS: Final = 20_000


class Expander:
    """A rule's wall times. They are seconds since 1970 as if they were UTC, as in `zones.py`."""

    __slots__ = ("_cache", "dtstart", "last", "parts", "start", "times")

    def __init__(self, parts: Parts, dtstart: datetime) -> None:
        self.parts = parts
        self.dtstart = dtstart
        self.start = seconds(dtstart.replace(tzinfo=UTC))
        self._cache: dict[int, list[int]] = {}
        self.times = sorted(
            (hour * 60 + minute) * 60 + second
            for hour in parts.hour or (dtstart.hour,)
            for minute in parts.minute or (dtstart.minute,)
            for second in parts.second or (dtstart.second,)
        )
        self.last = LAST_S
        if parts.until_wall is not None:
            self.last = seconds(parts.until_wall.replace(tzinfo=UTC))
        elif parts.count is not None:
            self.last = self._count(parts.count)

    def first(self, wall: int) -> int | None:
        """The earliest wall time of the rule at or after `wall`."""
        wall = max(wall, self.start)
        if wall > self.last:
            return None
        number = self._period(date.fromordinal(wall // DAY_S + EPOCH_ORDINAL))
        days = 0
        for index in range(number, number + MAX_PERIODS):
            candidates = self._candidates(index)
            if candidates is None or days > MAX_DAYS:
                return None
            days += len(candidates)
            found = self._expand(index, candidates)
            at = bisect_left(found, wall)
            if at < len(found):
                return found[at] if found[at] <= self.last else None
        return None

    def _count(self, count: int) -> int:
        """The last of `count` wall times."""
        days = left = 0
        for index in range(10 * MAX_PERIODS):
            candidates = self._candidates(index)
            if candidates is None:
                return LAST_S
            days += len(candidates)
            if days > 4 * MAX_DAYS and not left:
                return LAST_S
            if days > 4 * MAX_DAYS:
                raise InvalidSchedule(
                    f"RRULE: COUNT={count} reaches further than it is counted here: use UNTIL or max_runs"
                )
            found = [wall for wall in self._expand(index, candidates) if wall >= self.start]
            if left + len(found) >= count:
                return found[count - left - 1]
            left += len(found)
        return LAST_S

    def _period(self, day: date) -> int:
        """The number of the period that `day` is in, or of the one before if that is left out by INTERVAL."""
        first = self.dtstart
        freq = self.parts.freq
        if freq == "YEARLY":
            return (day.year - first.year) // self.parts.interval
        if freq == "MONTHLY":
            return ((day.year - first.year) * 12 + day.month - first.month) // self.parts.interval
        apart = day.toordinal() - first.toordinal()
        if freq == "WEEKLY":
            apart = (apart + (first.weekday() - self.parts.wkst) % 7) // 7
        return apart // self.parts.interval

    def _candidates(self, index: int) -> list[date] | None:
        """The days of a period before the BY parts choose; None beyond the calendar."""
        parts, first = self.parts, self.dtstart.date()
        index *= parts.interval
        try:
            if parts.freq == "DAILY":
                return [first + timedelta(days=index)]
            if parts.freq == "WEEKLY":
                monday = first + timedelta(days=7 * index - (first.weekday() - parts.wkst) % 7)
                return [monday + timedelta(days=n) for n in range(7)]
            if parts.freq == "MONTHLY":
                year, month = divmod(first.year * 12 + first.month - 1 + index, 12)
                return _month_days(year, month + 1)
            months = parts.month or (range(1, 13) if parts.names_days else (first.month,))
            return [day for month in months for day in _month_days(first.year + index, month)]
        except (OverflowError, ValueError):
            return None

    def _expand(self, index: int, candidates: list[date]) -> list[int]:
        found = self._cache.get(index)
        if found is None:
            days = [day.toordinal() - EPOCH_ORDINAL for day in candidates if self._fits(day)]
            found = [day * DAY_S + time for day in days for time in self.times]
            if self.parts.setpos:
                size = len(found)
                picked = {pos - 1 if pos > 0 else size + pos for pos in self.parts.setpos}
                found = [found[at] for at in sorted(picked) if 0 <= at < size]
            if len(self._cache) >= 8:
                self._cache.clear()
            self._cache[index] = found
        return found

    def _fits(self, day: date) -> bool:
        parts = self.parts
        if parts.month and day.month not in parts.month:
            return False
        if parts.monthday and not _counts(parts.monthday, day.day, _month_length(day)):
            return False
        if parts.yearday and not _counts(parts.yearday, _yearday(day), _year_length(day.year)):
            return False
        if parts.weekno and not _counts(parts.weekno, *_week(day, parts.wkst)):
            return False
        if parts.day and not any(self._fits_weekday(day, nth, weekday) for nth, weekday in parts.day):
            return False
        if parts.names_days:
            return True
        if parts.freq in ("MONTHLY", "YEARLY"):
            return day.day == self.dtstart.day
        return parts.freq == "DAILY" or day.weekday() == self.dtstart.weekday()

    def _fits_weekday(self, day: date, nth: int, weekday: int) -> bool:
        if day.weekday() != weekday:
            return False
        if nth == 0:
            return True
        if self.parts.freq == "YEARLY" and not self.parts.month:
            number, length = _yearday(day), _year_length(day.year)
        else:
            number, length = day.day, _month_length(day)
        return nth == ((number + 6) // 7 if nth > 0 else -((length - number) // 7 + 1))


@dataclass(frozen=True, slots=True, repr=False)
class RRule(Rule):
    """A recurrence rule: `RRule("FREQ=MONTHLY;BYDAY=-1FR", dtstart=datetime(2026, 1, 30, 17), tz="UTC")`.

    `dtstart` is wall time in `tz` (an aware one is converted). `gap` and `fold` are those of `Cron`.
    """

    KIND: ClassVar[str] = "rrule"

    rule: str
    _: KW_ONLY
    dtstart: datetime | None = None
    tz: str = "UTC"
    gap: Gap = "run"
    fold: Fold = "first"
    _expander: Expander = field(init=False, compare=False)
    _zone: Zone = field(init=False, compare=False)
    _window: tuple[int, int] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        check_word("gap", self.gap, Gap)
        check_word("fold", self.fold, Fold)
        self._check_bounds()
        parts = rrule_parts.parse(self.rule)
        put = object.__setattr__
        put(self, "_zone", zone(self.tz))
        if self.dtstart is not None:
            put(self, "dtstart", self._wall(self.dtstart))
        put(self, "_expander", Expander(parts, self.dtstart or self._default_dtstart(parts)))
        low, high = window(self.start, self.end)
        if parts.until_utc is not None:
            high = min(high, seconds(parts.until_utc))
        put(self, "_window", (low, high))
        if self._find(max(low, self._expander.start - 2 * DAY_S)) is None:
            since = self._expander.dtstart.isoformat()
            raise InvalidSchedule(f"RRULE {self.rule!r} never fires within its bounds, from {since} on")

    def next(self, after: datetime) -> datetime | None:
        """The first occurrence later than `after`, in UTC; None when there is none any more."""
        found = self._find(max(seconds(aware("after", after)) + 1, self._window[0]))
        return None if found is None else EPOCH + timedelta(seconds=found)

    def describe(self) -> str:
        """The rule as an English sentence."""
        words = rrule_words.sentence(self._expander.parts, self._expander.dtstart)
        return f"{words}, {self.tz} time{self._bounds_words()}."

    def _find(self, instant: int) -> int | None:
        found = next_instant(
            self._zone,
            instant,
            self._expander.first,
            hide_folds=self.fold == "first",
            fill_gaps=self.gap == "run",
        )
        return found if found is not None and found <= self._window[1] else None

    def _wall(self, dtstart: datetime) -> datetime:
        if not isinstance(dtstart, datetime):
            raise InvalidSchedule(f"dtstart is {dtstart!r}: give a datetime")
        if dtstart.utcoffset() is not None:
            instant = seconds(aware("dtstart", dtstart))
            try:
                dtstart = EPOCH + timedelta(seconds=instant + self._zone.offset_at(instant))
            except OverflowError as error:
                raise InvalidSchedule(f"dtstart is {dtstart}: that is beyond the calendar") from error
        return dtstart.replace(microsecond=0, tzinfo=None, fold=0)

    def _default_dtstart(self, parts: Parts) -> datetime:
        if self.start is not None:
            return self._wall(self.start)
        needs = "INTERVAL" if parts.interval > 1 else "COUNT" if parts.count else ""
        if not parts.names_days and parts.freq != "DAILY":
            needs = f"FREQ={parts.freq} without a BY... part for the day"
        if needs:
            raise InvalidSchedule(f"RRULE {self.rule!r}: {needs} counts from a first time: give dtstart")
        return datetime(1970, 1, 1)  # noqa: DTZ001 - wall time on purpose


def _counts(wanted: tuple[int, ...], number: int, length: int) -> bool:
    return number in wanted or number - length - 1 in wanted


def _month_days(year: int, month: int) -> list[date]:
    first = date(year, month, 1)
    return [date(year, month, number) for number in range(1, _month_length(first) + 1)]


def _month_length(day: date) -> int:
    if day.month == 2:
        return 28 + (_year_length(day.year) == 366)
    return 30 if day.month in (4, 6, 9, 11) else 31


def _year_length(year: int) -> int:
    return 366 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 365


def _yearday(day: date) -> int:
    return day.toordinal() - date(day.year, 1, 1).toordinal() + 1


def _weeks(year: int, wkst: int) -> Iterator[int]:
    """Where week 1 of this year and of the next begin, as ordinals: the weeks with four days in the year."""
    for each in (year, year + 1):
        first = _new_year(each)
        back = (first - 1 - wkst) % 7
        yield first - back if back <= 3 else first - back + 7


def _new_year(year: int) -> int:
    before = year - 1
    return before * 365 + before // 4 - before // 100 + before // 400 + 1


def _week(day: date, wkst: int) -> tuple[int, int]:
    """(the number of the day's week, how many weeks that week's year has)"""
    ordinal = day.toordinal()
    for year in (day.year + 1, day.year, day.year - 1):
        begin, following = _weeks(year, wkst)
        if ordinal >= begin:
            return (ordinal - begin) // 7 + 1, (following - begin) // 7
    raise AssertionError(f"{day} is in no week")
