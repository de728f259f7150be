"""An RRULE's text (RFC 5545), read into numbers or refused with the part and the reason. Floor 4, pure.

`rrule.py` calls `parse`. DAILY, WEEKLY, MONTHLY and YEARLY are offered. What is finer is an interval of
elapsed time and belongs to `Every`. Parts that the RFC forbids together are refused, not guessed at.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from redisched.errors import InvalidSchedule

WEEKDAYS: Final = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
FREQS: Final = ("DAILY", "WEEKLY", "MONTHLY", "YEARLY")
MAX_INTERVAL: Final = 10_000
MAX_COUNT: Final = 10_000
MAX_LENGTH: Final = 1_000

# part -> (lowest, highest, may be counted from the end)
_LISTS: Final = {
    "BYSETPOS": (1, 366, True),
    "BYMONTH": (1, 12, False),
    "BYMONTHDAY": (1, 31, True),
    "BYYEARDAY": (1, 366, True),
    "BYWEEKNO": (1, 53, True),
    "BYHOUR": (0, 23, False),
    "BYMINUTE": (0, 59, False),
    "BYSECOND": (0, 59, False),
}
_DAY: Final = re.compile(r"([+-]?[0-9]{1,2})?(MO|TU|WE|TH|FR|SA|SU)")
_UNTIL: Final = re.compile(r"([0-9]{8})(?:T([0-9]{6})(Z?))?")


@dataclass(frozen=True, slots=True)
class Parts:
    """A rule's parts; an empty tuple means that the part was not given."""

    freq: str
    interval: int = 1
    count: int | None = None
    until_wall: datetime | None = None
    until_utc: datetime | None = None
    wkst: int = 0
    setpos: tuple[int, ...] = ()
    month: tuple[int, ...] = ()
    monthday: tuple[int, ...] = ()
    yearday: tuple[int, ...] = ()
    weekno: tuple[int, ...] = ()
    hour: tuple[int, ...] = ()
    minute: tuple[int, ...] = ()
    second: tuple[int, ...] = ()
    day: tuple[tuple[int, int], ...] = ()
    """(n-th of the period or 0 for each, weekday with Monday as 0)"""

    @property
    def names_days(self) -> bool:
        """Some part says which days; otherwise the first occurrence does."""
        return bool(self.day or self.monthday or self.yearday or self.weekno)


def parse(text: str) -> Parts:
    """Reads `FREQ=...;...`, with or without `RRULE:` before it."""
    if not isinstance(text, str) or len(text) > MAX_LENGTH:
        raise InvalidSchedule(f"an RRULE is a text of at most {MAX_LENGTH} characters, such as 'FREQ=DAILY'")
    given: dict[str, str] = {}
    for part in text.strip().upper().removeprefix("RRULE:").rstrip(";").split(";"):
        name, equals, value = part.partition("=")
        if not equals or not value:
            raise _bad(text, part, "each part is NAME=VALUE, with a ';' between them")
        if name in given:
            raise _bad(text, name, "given twice")
        given[name] = value
    freq = given.pop("FREQ", "")
    if freq in ("SECONDLY", "MINUTELY", "HOURLY"):
        raise _bad(text, "FREQ", f"{freq} is an interval: use Every(timedelta(...))")
    if freq not in FREQS:
        raise _bad(text, "FREQ", f"it should be one of {', '.join(FREQS)}")
    lists = {name: _list(text, name, given.pop(name)) for name in _LISTS if name in given}
    until_wall, until_utc = _until(text, given.pop("UNTIL", None))
    parts = Parts(
        freq,
        interval=_int(text, "INTERVAL", given.pop("INTERVAL", "1"), 1, MAX_INTERVAL),
        count=_int(text, "COUNT", given.pop("COUNT"), 1, MAX_COUNT) if "COUNT" in given else None,
        until_wall=until_wall,
        until_utc=until_utc,
        wkst=_weekday(text, given.pop("WKST", "MO")),
        day=_days(text, given.pop("BYDAY", None)),
        **{name.removeprefix("BY").lower(): values for name, values in lists.items()},
    )
    if given:
        raise _bad(text, next(iter(given)), "not known here")
    _check_together(text, parts)
    return parts


def _check_together(text: str, parts: Parts) -> None:
    freq = parts.freq
    if parts.count is not None and (parts.until_wall or parts.until_utc):
        raise _bad(text, "COUNT", "it does not go with UNTIL")
    if parts.weekno and freq != "YEARLY":
        raise _bad(text, "BYWEEKNO", f"it goes with YEARLY, not with {freq}")
    if parts.yearday and freq != "YEARLY":
        raise _bad(text, "BYYEARDAY", f"it goes with YEARLY, not with {freq}")
    if parts.monthday and freq == "WEEKLY":
        raise _bad(text, "BYMONTHDAY", "it does not go with WEEKLY")
    if any(nth for nth, _ in parts.day) and (freq not in ("MONTHLY", "YEARLY") or parts.weekno):
        raise _bad(text, "BYDAY", "a numbered weekday such as 2MO needs MONTHLY or YEARLY, and no BYWEEKNO")
    others = parts.names_days or parts.month or parts.hour or parts.minute or parts.second
    if parts.setpos and not others:
        raise _bad(text, "BYSETPOS", "it picks from what another BY... part lists, and there is none")


def _list(text: str, name: str, value: str) -> tuple[int, ...]:
    low, high, from_end = _LISTS[name]
    return tuple(sorted({_int(text, name, item, low, high, from_end) for item in value.split(",")}))


def _int(text: str, name: str, item: str, low: int, high: int, from_end: bool = False) -> int:
    allowed = f"{low} to {high}" + (f" or -{high} to -{low}" if from_end else "")
    if not re.fullmatch(r"[+-]?[0-9]{1,6}" if from_end else "[0-9]{1,6}", item):
        raise _bad(text, name, f"{item!r} is not a number from {allowed}")
    number = int(item)
    if not low <= (abs(number) if from_end else number) <= high:
        raise _bad(text, name, f"{item} is not in {allowed}")
    return number


def _weekday(text: str, value: str) -> int:
    if value not in WEEKDAYS:
        raise _bad(text, "WKST", f"{value!r} is not one of {', '.join(WEEKDAYS)}")
    return WEEKDAYS.index(value)


def _days(text: str, value: str | None) -> tuple[tuple[int, int], ...]:
    found: set[tuple[int, int]] = set()
    for item in value.split(",") if value is not None else ():
        match = _DAY.fullmatch(item)
        nth = int(match[1] or 0) if match else 0
        if match is None or abs(nth) > 53 or (match[1] is not None and nth == 0):
            raise _bad(text, "BYDAY", f"{item!r} is not a weekday such as MO, 2MO or -1FR")
        found.add((nth, WEEKDAYS.index(match[2])))
    return tuple(sorted(found))


def _until(text: str, value: str | None) -> tuple[datetime | None, datetime | None]:
    """(as wall time, as an instant): at most one of them. A bare date includes the whole day."""
    if value is None:
        return None, None
    match = _UNTIL.fullmatch(value)
    try:
        if match is None:
            raise ValueError
        until = datetime.strptime(match[1] + (match[2] or "235959"), "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        raise _bad(text, "UNTIL", f"{value!r} is not a time such as 20261231T235959Z") from None
    return (None, until) if match[3] else (until.replace(tzinfo=None), None)


def _bad(text: str, part: str, reason: str) -> InvalidSchedule:
    shown = text if len(text) <= 80 else text[:77] + "..."
    return InvalidSchedule(f"RRULE {shown!r}: {part[:40]}: {reason}")
