"""A cron expression as an English sentence. Floor 4, pure.

`Cron.describe` calls it for the CLI and the dashboard. The words come from the masks that decide when the
expression fires, not from its text, so they cannot say something else than what happens.
"""

from __future__ import annotations

from redisched.cron.fields import Days, Fields
from redisched.cron.words import MONTHS, WEEKDAYS, clock, join, nth, plural, spans, stride, values

_ALL_DAYS = (2 << 31) - 2
_ALL_WEEKDAYS = 0b111_1111
_ALL_MONTHS = (2 << 12) - 2


def sentence(fields: Fields) -> str:
    """Time of day, days, months: without a full stop, so that the zone can follow."""
    parts = [_time(fields)]
    days = _days(fields.days)
    if days:
        parts.append(days)
    if fields.month != _ALL_MONTHS:
        parts.append(f"in {spans(values(fields.month), lambda n: MONTHS[n - 1])}")
    text = " ".join(parts)
    return text[0].upper() + text[1:]


def _time(fields: Fields) -> str:
    seconds, minutes, hours = values(fields.second), values(fields.minute), values(fields.hour)
    if len(seconds) * len(minutes) * len(hours) <= 6:
        return "at " + join([clock(h, m, s) for h in hours for m in minutes for s in seconds])
    if seconds == [0]:
        if minutes == [0]:
            return _hours(hours, "on the hour")
        return f"{_every(minutes, 60, 'minute', 'of the hour')}{_during(hours)}"
    within = "" if len(minutes) == 60 else f", {_every(minutes, 60, 'minute', 'of the hour')}"
    return f"{_every(seconds, 60, 'second', 'of the minute')}{within}{_during(hours)}"


def _hours(hours: list[int], where: str) -> str:
    step = stride(hours, 24)
    if step:
        return f"every {plural(step, 'hour')} {where}" + (" from midnight" if step > 1 else "")
    return f"{where} at {spans(hours, lambda n: clock(n, 0))}"


def _every(numbers: list[int], size: int, unit: str, whole: str) -> str:
    step = stride(numbers, size)
    if step:
        return f"every {plural(step, unit)}"
    return f"at {unit}{'s' if len(numbers) > 1 else ''} {spans(numbers)} {whole}"


def _during(hours: list[int]) -> str:
    step = stride(hours, 24)
    if step == 1:
        return ""
    if step:
        return f", in every {nth(step)} hour from midnight"
    return f", in the hour{'s' if len(hours) > 1 else ''} {spans(hours, lambda n: f'{n:02}')}"


def _days(days: Days) -> str:
    month_days, weekdays = _days_of_month(days), _days_of_week(days)
    if days.either and month_days and weekdays:
        return f"{month_days} and also {weekdays}"
    if month_days and weekdays:
        return f"{month_days} if that is {weekdays.removeprefix('on ')}"
    # One field that takes every day makes the other one redundant when either is enough, and silent when not.
    return "" if days.either else month_days or weekdays


def _days_of_month(days: Days) -> str:
    if days.dom == _ALL_DAYS:
        return ""
    parts = []
    numbers = values(days.dom)
    if numbers:
        parts.append(f"on day{'s' if len(numbers) > 1 else ''} {spans(numbers)} of the month")
    for back in values(days.from_end):
        if back == 0:
            parts.append("on the last day of the month")
        else:
            parts.append(f"{plural(back, 'day') if back > 1 else 'a day'} before the last day of the month")
    return join(parts)


def _days_of_week(days: Days) -> str:
    if days.dow == _ALL_WEEKDAYS:
        return ""
    parts = []
    # A week is read from Monday, with Sunday at its end.
    weekdays = [n for n in range(1, 8) if days.dow >> n % 7 & 1]
    if weekdays:
        parts.append(f"on {spans(weekdays, lambda n: WEEKDAYS[n % 7])}")
    parts += [f"on the {nth(bit // 7)} {WEEKDAYS[bit % 7]} of the month" for bit in values(days.nth)]
    parts += [f"on the last {WEEKDAYS[weekday]} of the month" for weekday in values(days.last)]
    return join(parts)
