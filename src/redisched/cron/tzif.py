"""One zone's compiled time zone data (TZif, RFC 9636) as plain numbers. Floor 4, pure.

`zones.py` reads the file and calls `parse`; nobody else does. `zoneinfo` reads the same files but tells only
the offset at an instant. To carry a wall time through a gap or a fold we need the instants at which the
offset changes, and asking for them by trial would cost more than the search itself.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, replace
from datetime import date

DAY_S = 86_400
EPOCH_ORDINAL = date(1970, 1, 1).toordinal()

_HEADER = struct.Struct(">4sc15x6I")
_NAME = r"(?:<[A-Za-z0-9+\-]+>|[A-Za-z]+)"
_TIME = r"[+-]?\d{1,3}(?::\d{1,2}(?::\d{1,2})?)?"
_DATE = rf"(?:M\d{{1,2}}\.\d\.\d|J\d{{1,3}}|\d{{1,3}})(?:/{_TIME})?"
_POSIX = re.compile(rf"{_NAME}({_TIME})(?:{_NAME}({_TIME})?,({_DATE}),({_DATE}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class YearRule:
    """The rule after the last listed change: two dates a year, each with the offset that it brings."""

    std_s: int
    dst_s: int
    begins: str
    ends: str

    def changes(self, year: int) -> list[tuple[int, int]]:
        """The year's changes as (instant, offset after it), in order."""
        begins = _instant(self.begins, year) - self.std_s
        ends = _instant(self.ends, year) - self.dst_s
        return sorted([(begins, self.dst_s), (ends, self.std_s)])


@dataclass(frozen=True, slots=True)
class Listing:
    """What a file says: the offset before all changes, the changes, and what follows them."""

    before_s: int
    changes: list[tuple[int, int]]
    listed_until: int | None
    """The last entry, which need not change the offset. The rule holds from there on."""
    rule: YearRule | None


def parse(data: bytes) -> Listing:
    """Reads a TZif file. `ValueError` when it is not one."""
    try:
        return _parse(data)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise ValueError(f"not time zone data: {error}") from error


def _parse(data: bytes) -> Listing:
    magic, version, *counts = _HEADER.unpack_from(data, 0)
    if magic != b"TZif":
        raise ValueError("not time zone data: it does not begin with TZif")
    if version == b"\0":
        return _block(data, _HEADER.size, counts, 4)[0]
    # The first block holds 32-bit times for old readers; the one after it says the same and more.
    second = _HEADER.size + _block_size(counts, 4)
    _, _, *counts = _HEADER.unpack_from(data, second)
    listing, end = _block(data, second + _HEADER.size, counts, 8)
    footer = data[end:].split(b"\n")[1].decode("ascii")
    return replace(listing, rule=_year_rule(footer))


def _block_size(counts: list[int], width: int) -> int:
    utc, std, leaps, times, types, chars = counts
    return times * (width + 1) + types * 6 + chars + leaps * (width + 4) + std + utc


def _block(data: bytes, at: int, counts: list[int], width: int) -> tuple[Listing, int]:
    times, types = counts[3], counts[4]
    instants = struct.unpack_from(f">{times}{'q' if width == 8 else 'l'}", data, at)
    kinds = data[at + times * width : at + times * (width + 1)]
    at_types = at + times * (width + 1)
    offsets = [struct.unpack_from(">l", data, at_types + 6 * n)[0] for n in range(types)]
    changes: list[tuple[int, int]] = []
    current = offsets[0]
    for instant, kind in zip(instants, kinds, strict=True):
        # A new name or a new flag with the same offset changes nothing on the wall.
        if offsets[kind] != current:
            current = offsets[kind]
            changes.append((instant, current))
    listing = Listing(offsets[0], changes, instants[-1] if instants else None, None)
    return listing, at + _block_size(counts, width)


def _year_rule(footer: str) -> YearRule | None:
    if not footer:
        return None
    match = _POSIX.fullmatch(footer)
    if match is None:
        raise ValueError(f"not time zone data: unknown rule {footer!r}")
    std, dst, begins, ends = match.groups()
    if begins is None:
        return None
    # The signs are POSIX's: hours west of Greenwich are positive.
    std_s = -_seconds(std)
    dst_s = -_seconds(dst) if dst else std_s + 3_600
    return YearRule(std_s, dst_s, begins, ends) if std_s != dst_s else None


def _seconds(text: str) -> int:
    sign = -1 if text.startswith("-") else 1
    parts = [int(part) for part in text.lstrip("+-").split(":")]
    return sign * sum(part * unit for part, unit in zip(parts, (3_600, 60, 1), strict=False))


def _instant(rule: str, year: int) -> int:
    """A POSIX date rule in a year, as seconds of wall time since 1970."""
    day, _, at = rule.partition("/")
    # Ordinals are counted by hand, so that the years after 9999 work as well.
    cycles, year = divmod(year - 2000, 400)
    year += 2000
    first = date(year, 1, 1).toordinal()
    if day.startswith("M"):
        month, week, weekday = (int(part) for part in day[1:].split("."))
        start = date(year, month, 1).toordinal()
        following = date(year + month // 12, month % 12 + 1, 1).toordinal()
        ordinal = start + (weekday - start) % 7 + 7 * (week - 1)
        while ordinal >= following:
            ordinal -= 7
    elif day.startswith("J"):
        leap = date(year, 12, 31).toordinal() - first == 365
        number = int(day[1:])
        ordinal = first + number - 1 + (leap and number >= 60)
    else:
        ordinal = first + int(day)
    days = ordinal + cycles * 146_097 - EPOCH_ORDINAL
    return days * DAY_S + (_seconds(at) if at else 7_200)
