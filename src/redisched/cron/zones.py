"""Time zones: wall time to instants, through gaps and folds. Floor 4, pure apart from reading zone files.

`Cron` and `RRule` call `zone` when they are made and `next_instant` for every answer. All zones come from one
source: the `tzdata` package when it is installed, otherwise the system's files. A fleet whose hosts
read different editions would disagree by an hour on some days, so nothing here ever mixes the two.
Never here: what an expression means (`cron_fields.py`, `rrule.py`).
"""

from __future__ import annotations

import difflib
import functools
import importlib.metadata
import importlib.resources
import re
import threading
import zoneinfo
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from importlib.resources.abc import Traversable
from pathlib import Path

from redisched.cron import tzif
from redisched.errors import InvalidSchedule

# A clock that jumps by this much is taken as having been set, not as summer time.
JUMP_S = 3 * 3_600
TWO_DAYS_S = 2 * tzif.DAY_S
FOREVER_S = 1 << 60
# 2026-01-01. Whether an expression fires at all is asked from here, under today's zone rules; a fixed
# instant makes the answer the same on every host and every day.
TODAY_S = 1_767_225_600
# Each pass of a search ends it, moves to the next change of the clock or jumps near the next match.
MAX_PASSES = 400

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAME = re.compile(r"[A-Za-z0-9_+\-]+(?:/[A-Za-z0-9_+\-]+)*", re.ASCII)
# Names that stand for whatever the host is set to: the opposite of one answer for the fleet.
_HOST_NAMES = frozenset({"localtime", "posixrules"})

First = Callable[[int], int | None]


class Zone:
    """A zone as stretches of constant offset. Stretch `i` lasts from `starts[i]` to `starts[i + 1]`.

    The list grows on demand, because most zones go on for ever by a yearly rule. `table` is replaced as a
    whole, so a thread that reads it while another one extends it sees the old list or the new one.
    """

    __slots__ = ("_listed_until", "_lock", "_rule", "_year", "name", "table")

    def __init__(self, name: str, listing: tzif.Listing) -> None:
        self.name = name
        self._lock = threading.Lock()
        self._rule = listing.rule
        starts = [-FOREVER_S, *(instant for instant, _ in listing.changes)]
        offsets = [listing.before_s, *(offset for _, offset in listing.changes)]
        # (starts, offsets, the instant up to which they are complete)
        self.table: tuple[list[int], list[int], int] = (starts, offsets, FOREVER_S)
        if listing.rule is not None:
            until = listing.listed_until if listing.listed_until is not None else _year_start(1900)
            self._year = (_EPOCH + timedelta(seconds=until)).year
            self._listed_until = until
            self.table = (starts, offsets, until)
            self.extend(until)

    @property
    def changes_yearly(self) -> bool:
        """The clocks go on changing, by a rule or by a list that reaches beyond today."""
        return self._rule is not None or self.table[0][-1] > TODAY_S

    def extend(self, instant: int) -> tuple[list[int], list[int], int]:
        """Makes the table complete beyond `instant`, and some decades more."""
        with self._lock:
            starts, offsets, known = self.table
            if instant < known:
                return self.table
            assert self._rule is not None, "a zone without a rule is complete from the start"
            starts, offsets = starts[:], offsets[:]
            while known <= instant + 20 * 366 * tzif.DAY_S:
                for at, offset in self._rule.changes(self._year):
                    if at > max(self._listed_until, starts[-1]) and offset != offsets[-1]:
                        starts.append(at)
                        offsets.append(offset)
                self._year += 1
                # No rule changes the clock in the last week of a year; staying clear of New Year keeps
                # a change that belongs to the next year out of the part that is called complete.
                known = _year_start(self._year) - 7 * tzif.DAY_S
            self.table = (starts, offsets, known)
            return self.table

    def offset_at(self, instant: int) -> int:
        """Seconds east of UTC at an instant."""
        starts, offsets, known = self.table
        if instant >= known:
            starts, offsets, known = self.extend(instant)
        return offsets[bisect_right(starts, instant) - 1]


def next_instant(zone: Zone, instant: int, first: First, *, hide_folds: bool, fill_gaps: bool) -> int | None:
    """The earliest instant at or after `instant` whose wall time matches, in seconds since 1970.

    `first(t)` gives the earliest match at or after the wall time `t` (seconds since 1970 as if it were
    UTC). `hide_folds`: the second pass through repeated times does not count. `fill_gaps`: matches that
    a gap swallowed happen once, right after it. Both stop at jumps of the clock (`JUMP_S`).
    """
    starts, offsets, known = zone.table
    if instant >= known:
        starts, offsets, known = zone.extend(instant)
    # Right after a gap we begin in the stretch before it: what the gap swallowed may be due now.
    i = bisect_left(starts, instant) - 1
    for _ in range(MAX_PASSES):
        offset = offsets[i]
        wall = instant + offset
        if hide_folds and i and 0 < (back := offsets[i - 1] - offset) <= JUMP_S:
            wall = max(wall, starts[i] + offset + back)
        match = first(wall)
        if match is None:
            return None
        found = match - offset
        if i + 1 == len(starts):
            if found < known:
                return found
            starts, offsets, known = zone.extend(found)
            continue
        end = starts[i + 1]
        if found < end:
            return found
        if found - end > TWO_DAYS_S and end - instant > TWO_DAYS_S:
            # Nothing matches between here and there, and no offset is two days long: a rare expression
            # need not walk through every change of the clock on the way.
            instant = found - TWO_DAYS_S
            if instant >= known:
                starts, offsets, known = zone.extend(instant)
            i = bisect_left(starts, instant) - 1
            continue
        ahead = offsets[i + 1] - offset
        if fill_gaps and 0 < ahead < JUMP_S and match < end + offset + ahead:
            return end
        instant = end
        i += 1
    return None


@functools.cache
def zone(name: str) -> Zone:
    """The zone of that IANA name. `InvalidSchedule` when there is none."""
    if not isinstance(name, str) or not name:
        raise InvalidSchedule(f"time zone {name!r}: give an IANA name such as 'Europe/Berlin'")
    data = _read(name) if _NAME.fullmatch(name) and name not in _HOST_NAMES else None
    if data is None:
        if name == "UTC":
            return Zone(name, tzif.Listing(0, [], None, None))
        near = difflib.get_close_matches(name[:60], zone_names(), n=1, cutoff=0.7)
        hint = f"did you mean {near[0]!r}?" if near else "give an IANA name such as 'Europe/Berlin'"
        raise InvalidSchedule(f"time zone {name!r} is not known: {hint}")
    try:
        return Zone(name, tzif.parse(data))
    except ValueError as error:
        raise InvalidSchedule(f"time zone {name!r} is {error}") from error


@functools.cache
def _package() -> Traversable | None:
    try:
        return importlib.resources.files("tzdata").joinpath("zoneinfo")
    except ModuleNotFoundError:
        return None


def _read(name: str) -> bytes | None:
    package = _package()
    folders: list[Traversable] = [package] if package is not None else [Path(p) for p in zoneinfo.TZPATH]
    for folder in folders:
        try:
            return folder.joinpath(*name.split("/")).read_bytes()
        except (OSError, ValueError):
            continue
    return None


@functools.cache
def zone_names() -> tuple[str, ...]:
    """Every name the source lists, for hints."""
    package = _package()
    if package is None:
        return tuple(sorted(zoneinfo.available_timezones()))
    listed = package.parent if isinstance(package, Path) else importlib.resources.files("tzdata")
    try:
        return tuple(listed.joinpath("zones").read_text(encoding="ascii").split())
    except OSError:
        return ()


@functools.cache
def tzdata_version() -> str:
    """The edition of the zone data in use, such as `2026a`. Stored times are recomputed when it changes."""
    if _package() is not None:
        try:
            return importlib.metadata.version("tzdata")
        except importlib.metadata.PackageNotFoundError:
            return "unknown"
    for folder in zoneinfo.TZPATH:
        for file in ("tzdata.zi", "+VERSION"):
            try:
                with (Path(folder) / file).open(encoding="ascii") as lines:
                    return lines.readline().removeprefix("# version").strip()
            except OSError:
                continue
    return "unknown"


def _year_start(year: int) -> int:
    cycles, year = divmod(year - 2000, 400)
    days = datetime(year + 2000, 1, 1, tzinfo=UTC) - _EPOCH
    return (days.days + cycles * 146_097) * tzif.DAY_S
