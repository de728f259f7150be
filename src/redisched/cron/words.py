"""Numbers and lists as English words, for the sentences that describe a rule. Floor 4, pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

MONTHS: Final = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
WEEKDAYS: Final = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_NTH: Final = ("", "first", "second", "third", "fourth", "fifth")


def values(mask: int) -> list[int]:
    """The numbers whose bits are set."""
    return [n for n in range(mask.bit_length()) if mask >> n & 1]


def join(parts: Sequence[str], word: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`."""
    if len(parts) < 2:
        return "".join(parts)
    return f"{', '.join(parts[:-1])} {word} {parts[-1]}"


def spans(numbers: Sequence[int], show: Callable[[int], str] = str) -> str:
    """Numbers with three or more in a row drawn together: `1 to 5, 8 and 9`."""
    parts: list[str] = []
    at = 0
    while at < len(numbers):
        end = at
        while end + 1 < len(numbers) and numbers[end + 1] == numbers[end] + 1:
            end += 1
        if end - at >= 2:
            parts.append(f"{show(numbers[at])} to {show(numbers[end])}")
        else:
            parts += [show(number) for number in numbers[at : end + 1]]
        at = end + 1
    return join(parts)


def stride(numbers: Sequence[int], size: int) -> int:
    """n when the numbers are every n-th of `size` from 0, with no shorter last step; otherwise 0."""
    step = numbers[1] if len(numbers) > 1 and numbers[0] == 0 else 0
    return step if step and size % step == 0 and list(numbers) == list(range(0, size, step)) else 0


def nth(number: int) -> str:
    """`second`, `last`, `second to last`, `12th`."""
    if number < 0:
        return "last" if number == -1 else f"{nth(-number)} to last"
    if number < len(_NTH):
        return _NTH[number]
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10 if number not in (11, 12, 13) else 0, "th")
    return f"{number}{ending}"


def plural(count: int, unit: str) -> str:
    """`minute`, `2 minutes`: how often, after `every`."""
    return unit if count == 1 else f"{count:,} {unit}s"


def clock(hour: int, minute: int, second: int = 0) -> str:
    """A time of day; the seconds only when there are some."""
    return f"{hour:02}:{minute:02}" + (f":{second:02}" if second else "")
