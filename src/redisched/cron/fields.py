"""A cron expression, read into bit masks, or refused with the field and the reason. Floor 4, pure.

`cron.py` calls `parse`; `cron_words.py` reads the same result. A mask has bit `n` set when the value `n`
matches. Never here: time zones, and what happens at their gaps and folds (`zones.py`).
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from redisched.errors import InvalidSchedule

ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
MAX_LENGTH = 1_000

# The lengths a month can have. In 400 years each of them begins on each weekday.
_LENGTHS = dict.fromkeys(range(1, 13), (31,)) | dict.fromkeys((4, 6, 9, 11), (30,)) | {2: (28, 29)}
_BLANK = " \t\r\n\f\v"
_HINTS = {
    "h": "'H' (a hashed time) is not known here: choose a fixed time, and spread load with jitter",
    "r": "'R' (a random time) is not known here: choose a fixed time, and spread load with jitter",
    "w": "'W' (the nearest working day) is not known here",
}


@dataclass(frozen=True, slots=True)
class Spec:
    """A field's name and what it holds."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    first_name: int = 0


SECOND = Spec("second", 0, 59)
MINUTE = Spec("minute", 0, 59)
HOUR = Spec("hour", 0, 23)
DAY = Spec("day of month", 1, 31)
MONTH = Spec("month", 1, 12, MONTHS, 1)
WEEKDAY = Spec("day of week", 0, 7, WEEKDAYS)


@dataclass(frozen=True, slots=True)
class Days:
    """Both day fields."""

    dom: int
    """Days of the month."""
    from_end: int
    """Bit n: n days before the month's last day (`L` is bit 0)."""
    dow: int
    """Weekdays, Sunday is bit 0."""
    nth: int
    """Bit 7 * k + w: the weekday w for the k-th time in the month (`n#k`)."""
    last: int
    """Weekdays that count only for the last time in the month (`nL`)."""
    either: bool
    """One of the two fields is enough. Without it, both must match."""

    def mask(self, length: int, first: int) -> int:
        """The matching days of a month of that length whose day 1 is the weekday `first`."""
        inside = (2 << length) - 2
        dom = self.dom & inside
        dow = 0
        for n in range(31):
            if self.from_end >> n & 1 and n < length:
                dom |= 1 << length - n
        for weekday in range(7):
            day = 1 + (weekday - first) % 7
            while day <= length:
                if (
                    self.dow >> weekday & 1
                    or self.nth >> 7 * ((day + 6) // 7) + weekday & 1
                    or (self.last >> weekday & 1 and day + 7 > length)
                ):
                    dow |= 1 << day
                day += 7
        return dom | dow if self.either else dom & dow


@dataclass(frozen=True, slots=True)
class Fields:
    """A whole expression."""

    texts: tuple[str, ...]
    """The fields as written, seconds first, an alias spelt out."""
    second: int
    minute: int
    hour: int
    month: int
    days: Days
    masks: tuple[int, ...]
    """`days.mask(length, first)` for every kind of month, at 7 * (length - 28) + first."""
    wild: bool
    """The time of day follows the wall clock as it is: nothing in a gap, twice in a fold."""


@functools.lru_cache(maxsize=16_384)
def parse(expr: str, seconds: bool) -> Fields:
    """Reads five fields, or six (seconds first) when `seconds` is asked for."""
    texts = _split(expr, seconds)
    second, minute, hour = (
        _times(expr, spec, text) for spec, text in zip((SECOND, MINUTE, HOUR), texts[:3], strict=True)
    )
    dom, from_end = _days_of_month(expr, texts[3])
    month = _times(expr, MONTH, texts[4])
    dow, nth, last = _days_of_week(expr, texts[5])
    either = texts[3][0] not in "*?" and texts[5][0] not in "*?"
    days = Days(dom, from_end, dow, nth, last, either)
    masks = _masks(days)
    if not any(
        masks[7 * (length - 28) + first]
        for number in range(1, 13)
        if month >> number & 1
        for length in _LENGTHS[number]
        for first in range(7)
    ):
        raise InvalidSchedule(
            f"cron expression {expr!r}: day of month {texts[3]!r}, month {texts[4]!r} and day of week "
            f"{texts[5]!r} never come together, so it would never fire"
        )
    wild = any(text.startswith("*") for text in texts[:3])
    return Fields(texts, second, minute, hour, month, days, masks, wild)


@functools.lru_cache(maxsize=4_096)
def _masks(days: Days) -> tuple[int, ...]:
    return tuple(days.mask(length, first) for length in range(28, 32) for first in range(7))


def _split(expr: str, seconds: bool) -> tuple[str, ...]:
    shown = expr if len(expr) <= 80 else expr[:77] + "..."
    if len(expr) > MAX_LENGTH:
        raise InvalidSchedule(f"cron expression {shown!r}: it is longer than {MAX_LENGTH} characters")
    for char in expr:
        if not char.isascii() or not (char.isprintable() or char in _BLANK):
            raise InvalidSchedule(f"cron expression {shown!r}: {char!r} does not belong in an expression")
    text = expr.strip(_BLANK).lower()
    if text.startswith("@"):
        if text == "@reboot":
            raise InvalidSchedule("cron expression '@reboot': it names no time; enqueue at start-up instead")
        if text not in ALIASES:
            raise InvalidSchedule(f"cron expression {shown!r}: unknown alias, known are {', '.join(ALIASES)}")
        return ("0", *ALIASES[text].split())
    fields = tuple(re.split(f"[{_BLANK}]+", text)) if text else ()
    wanted = 6 if seconds else 5
    if len(fields) != wanted:
        hint = "; six fields need seconds=True" if len(fields) == 6 else ""
        names = "minute, hour, day of month, month, day of week"
        names = f"second, {names}" if seconds else names
        raise InvalidSchedule(f"cron expression {shown!r}: {len(fields)} fields, it takes {wanted} ({names}){hint}")
    return fields if seconds else ("0", *fields)


def _times(expr: str, spec: Spec, text: str) -> int:
    mask = 0
    for item in text.split(","):
        mask |= _item(expr, spec, text, item)
    return mask


def _days_of_month(expr: str, text: str) -> tuple[int, int]:
    """(days, days counted from the month's end)"""
    dom = from_end = 0
    for item in ("*" if text == "?" else text).split(","):
        if item == "l":
            from_end |= 1
        elif item.startswith("l-"):
            back = _number(item[2:])
            if back is None or back > 30:
                raise _bad(expr, DAY, text, f"{item!r} should be 'L-n' with n from 0 to 30")
            from_end |= 1 << back
        else:
            # `29-L`: a month ends by itself, so the 31st stands for its last day in a range.
            head, dash, tail = item.partition("-")
            open_end = dash and (tail == "l" or tail.startswith("l/"))
            dom |= _item(expr, DAY, text, f"{head}-31{tail[1:]}" if open_end else item)
    return dom, from_end


def _days_of_week(expr: str, text: str) -> tuple[int, int, int]:
    """(weekdays, n-th weekdays, last weekdays)"""
    dow = nth = last = 0
    for item in ("*" if text == "?" else text).split(","):
        if "#" in item:
            day, _, count = item.partition("#")
            if count not in ("1", "2", "3", "4", "5"):
                raise _bad(expr, WEEKDAY, text, f"{item!r} should be 'n#k' with k from 1 to 5")
            nth |= 1 << 7 * int(count) + _value(expr, WEEKDAY, text, day) % 7
        elif len(item) > 1 and item.endswith("l"):
            last |= 1 << _value(expr, WEEKDAY, text, item[:-1]) % 7
        elif len(item) == 2 and item.startswith("l"):
            last |= 1 << _value(expr, WEEKDAY, text, item[1:]) % 7
        else:
            found = _item(expr, WEEKDAY, text, item)
            dow |= (found | found >> 7) & 0b111_1111
    return dow, nth, last


def _item(expr: str, spec: Spec, text: str, item: str) -> int:
    """`*`, `a`, `a-b`, each also with `/step`; `a/step` runs to the end of the field."""
    body, slash, tail = item.partition("/")
    step = 1
    if slash:
        number = _number(tail)
        size = spec.high - spec.low + 1
        if not number:
            raise _bad(expr, spec, text, f"the step in {item!r} should be a number from 1 to {size}")
        if number > size:
            raise _bad(expr, spec, text, f"the step {number} is beyond the field, which has {size} values")
        step = number
    if body == "*":
        low, high = spec.low, spec.high
    else:
        first, dash, second = body.partition("-")
        low = _value(expr, spec, text, first)
        high = _value(expr, spec, text, second) if dash else (spec.high if slash else low)
        if low > high:
            hint = f"; Sunday at the end of a range is 7: {low}-7" if spec is WEEKDAY and high == 0 else ""
            raise _bad(expr, spec, text, f"the range {body!r} runs backwards{hint}")
    return sum(1 << value for value in range(low, high + 1, step))


def _value(expr: str, spec: Spec, text: str, word: str) -> int:
    number = _number(word)
    if number is not None:
        if not spec.low <= number <= spec.high:
            raise _bad(expr, spec, text, f"{word} is not between {spec.low} and {spec.high}")
        return number
    if word in spec.names:
        return spec.names.index(word) + spec.first_name
    if word == "":
        raise _bad(expr, spec, text, "a value is missing")
    if word == "?":
        raise _bad(expr, spec, text, "'?' can only be the whole of a day field")
    if word == "l":
        raise _bad(expr, spec, text, "'L' does not fit: L and L-n are days of the month, 5L is a weekday")
    if word[:3] in spec.names:
        raise _bad(expr, spec, text, f"{word!r} is not a name: write {word[:3]!r}")
    named = f", or a name such as {spec.names[1]!r}" if spec.names else ""
    reason = f"{word!r} is not a number from {spec.low} to {spec.high}{named}"
    raise _bad(expr, spec, text, _HINTS.get(word.strip("0123456789")[:1], reason))


def _number(text: str) -> int | None:
    # Nine digits are more than any field takes and less than `int` could choke on.
    return int(text) if text.isdigit() and len(text) <= 9 else None


def _bad(expr: str, spec: Spec, text: str, reason: str) -> InvalidSchedule:
    shown = text if len(text) <= 40 else text[:37] + "..."
    whole = expr if len(expr) <= 80 else expr[:77] + "..."
    return InvalidSchedule(f"cron expression {whole!r}: {spec.name} {shown!r}: {reason[:200]}")
