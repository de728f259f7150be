"""An RRULE as an English sentence. Floor 4, pure. `RRule.describe` calls it."""

from __future__ import annotations

from datetime import datetime

from redisched.cron.rrule_parts import Parts
from redisched.cron.words import MONTHS, WEEKDAYS, clock, join, nth, plural, spans

_UNITS = {"DAILY": "day", "WEEKLY": "week", "MONTHLY": "month", "YEARLY": "year"}


def sentence(parts: Parts, dtstart: datetime) -> str:
    """How often, on which days, at what time, how long: without a full stop, so that the zone can follow."""
    words = [f"Every {plural(parts.interval, _UNITS[parts.freq])}", *_days(parts, dtstart)]
    if parts.month:
        words.append(f"in {spans(parts.month, lambda n: MONTHS[n - 1])}")
    words.append(_times(parts, dtstart))
    text = " ".join(words)
    if parts.setpos:
        text += f" (of these only the {join([nth(n) for n in parts.setpos])} in each {_UNITS[parts.freq]})"
    if parts.count is not None:
        text += f", {parts.count:,} times" if parts.count > 1 else ", once"
    until = parts.until_wall or parts.until_utc
    if until is not None:
        text += f", until {until.isoformat(sep=' ').replace('+00:00', ' UTC')}"
    return text


def _days(parts: Parts, dtstart: datetime) -> list[str]:
    words: list[str] = []
    if parts.day:
        each = [nth_ for nth_ in parts.day if not nth_[0]]
        named = [f"{_weekday(day)}" for _, day in each]
        named += [f"the {nth(number)} {_weekday(day)}" for number, day in parts.day if number]
        words.append(f"on {join(named)}")
    if parts.monthday:
        days = f"day{'s' if len(parts.monthday) > 1 else ''} {join([str(n) for n in parts.monthday])}"
        words.append(f"on {days} of the month")
    if parts.yearday:
        words.append(f"on day {join([str(n) for n in parts.yearday])} of the year")
    if parts.weekno:
        words.append(f"in week {join([str(n) for n in parts.weekno])}")
    if words or parts.freq == "DAILY":
        return words
    if parts.freq == "WEEKLY":
        return [f"on {_weekday(dtstart.weekday())}"]
    if parts.freq == "MONTHLY" or parts.month:
        return [f"on day {dtstart.day} of the month"]
    return [f"on {dtstart.day} {MONTHS[dtstart.month - 1]}"]


def _weekday(monday_first: int) -> str:
    return WEEKDAYS[(monday_first + 1) % 7]


def _times(parts: Parts, dtstart: datetime) -> str:
    times = [
        clock(hour, minute, second)
        for hour in parts.hour or (dtstart.hour,)
        for minute in parts.minute or (dtstart.minute,)
        for second in parts.second or (dtstart.second,)
    ]
    if len(times) > 6:
        return f"at {len(times):,} times of the day, from {times[0]} to {times[-1]}"
    return f"at {join(times)}"
