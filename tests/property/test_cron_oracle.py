"""Cron against a slow oracle that walks the clock. Tries to find a wall time the two disagree about.

The oracle shares nothing with the code under test: it asks `zoneinfo` for the offset at every UTC minute,
decides by the written rules, and gets the meaning of a field from the generator that wrote the field, not
from a parser. `REDISCHED_ORACLE_CASES` asks for more cases, `REDISCHED_ORACLE_SEED` repeats a run.
"""

from __future__ import annotations

import calendar
import functools
import importlib.resources
import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from redisched.cron import Cron
from redisched.errors import InvalidSchedule

SEED = int(os.environ.get("REDISCHED_ORACLE_SEED") or random.SystemRandom().randrange(2**32))
CASES = int(os.environ.get("REDISCHED_ORACLE_CASES") or 4_500)
PER_WINDOW = 12
ZONES = [
    "Africa/Cairo",
    "Africa/Casablanca",
    "Africa/Juba",
    "Africa/Sao_Tome",
    "Africa/Windhoek",
    "America/Asuncion",
    "America/Caracas",
    "America/Havana",
    "America/Los_Angeles",
    "America/Metlakatla",
    "America/New_York",
    "America/Nuuk",
    "America/Santiago",
    "America/Sao_Paulo",
    "America/Scoresbysund",
    "America/St_Johns",
    "Antarctica/Casey",
    "Antarctica/Davis",
    "Antarctica/Macquarie",
    "Antarctica/Troll",
    "Antarctica/Vostok",
    "Asia/Amman",
    "Asia/Beirut",
    "Asia/Colombo",
    "Asia/Damascus",
    "Asia/Gaza",
    "Asia/Jerusalem",
    "Asia/Kathmandu",
    "Asia/Pyongyang",
    "Asia/Tehran",
    "Atlantic/Azores",
    "Australia/Adelaide",
    "Australia/Eucla",
    "Australia/Lord_Howe",
    "Europe/Berlin",
    "Europe/Dublin",
    "Europe/Istanbul",
    "Europe/Lisbon",
    "Europe/London",
    "Europe/Riga",
    "Europe/Simferopol",
    "Europe/Volgograd",
    "Pacific/Apia",
    "Pacific/Auckland",
    "Pacific/Chatham",
    "Pacific/Enderbury",
    "Pacific/Fakaofo",
    "Pacific/Kiritimati",
    "Pacific/Kwajalein",
    "Pacific/Norfolk",
    "UTC",
]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
HOUR = 60
DAY = 24 * HOUR
Test = Callable[[int], bool]
DayTest = Callable[[date], bool]


@functools.cache
def place(name: str) -> ZoneInfo:
    path = importlib.resources.files("tzdata").joinpath("zoneinfo", *name.split("/"))
    with path.open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


def offset(name: str, minute: int) -> int:
    """Minutes east of UTC at a UTC minute since 1970."""
    found = (EPOCH + timedelta(minutes=minute)).astimezone(place(name)).utcoffset()
    assert found is not None
    assert found % timedelta(minutes=1) == timedelta(0)
    return found // timedelta(minutes=1)


@functools.cache
def changes(name: str) -> tuple[int, ...]:
    """The UTC minutes from 1967 to 2045 at which the offset changes."""
    found = []
    days = range((date(1967, 1, 1) - date(1970, 1, 1)).days, (date(2045, 1, 1) - date(1970, 1, 1)).days, 4)
    before = offset(name, days[0] * DAY)
    for day in days[1:]:
        now = offset(name, day * DAY)
        if now != before:
            low, high = (day - 4) * DAY, day * DAY
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if offset(name, middle) == before else (low, middle)
            found.append(high)
        before = now
    return tuple(found)


@dataclass
class Field:
    """A field's text and what it means, made together."""

    text: str
    test: Test

    @property
    def star(self) -> bool:
        return self.text[0] == "*"


def number_field(rng: random.Random, low: int, high: int, likely: int | None = None) -> Field:
    """A random field of numbers; `likely` is a value worth meeting."""
    items: list[tuple[str, set[int]]] = []
    size = high - low + 1
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        a, b = sorted((rng.randint(low, high), rng.randint(low, high)))
        if likely is not None and rng.random() < 0.7:
            a = likely
            b = rng.randint(a, high)
        n = rng.choice([1, 2, 3, 5, 7, 10, 12, 15, 20, 30, size])
        n = min(n, size)
        items.append(
            rng.choice(
                [
                    (f"{a}", {a}),
                    (f"{a}", {a}),
                    (f"{a:02}", {a}),
                    ("*", set(range(low, high + 1))),
                    (f"*/{n}", set(range(low, high + 1, n))),
                    (f"{a}-{b}", set(range(a, b + 1))),
                    (f"{a}-{b}/{n}", set(range(a, b + 1, n))),
                    (f"{a}/{n}", set(range(a, high + 1, n))),
                ]
            )
        )
    values = set().union(*(part for _, part in items))
    return Field(",".join(text for text, _ in items), values.__contains__)


@dataclass
class Expression:
    """A random expression with its own meaning."""

    text: str
    second: Field
    minute: Field
    hour: Field
    day: DayTest

    @property
    def wild(self) -> bool:
        return self.second.star or self.minute.star or self.hour.star


def month_length(day: date) -> int:
    return calendar.monthrange(day.year, day.month)[1]


def dom_field(rng: random.Random, likely: int) -> tuple[str, DayTest]:
    kind = rng.random()
    if kind < 0.5:
        return "*", lambda day: True
    if kind < 0.55:
        return "?", lambda day: True
    if kind < 0.62:
        return "L", lambda day: day.day == month_length(day)
    if kind < 0.70:
        back = rng.randint(0, 30)
        return f"L-{back}", lambda day: day.day == month_length(day) - back
    if kind < 0.75:
        return f"{likely}-L", lambda day: day.day >= likely
    field = number_field(rng, 1, 31, likely)
    return field.text, lambda day: field.test(day.day)


def dow_field(rng: random.Random, likely: int) -> tuple[str, DayTest]:
    """`likely` is a weekday with Sunday as 0."""
    names = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
    word = rng.choice([str(likely), names[likely], names[likely].upper(), "7" if likely == 0 else str(likely)])
    kind = rng.random()
    if kind < 0.5:
        return "*", lambda day: True
    if kind < 0.55:
        return "?", lambda day: True
    if kind < 0.65:
        count = rng.randint(1, 5)
        return f"{word}#{count}", lambda day: weekday(day) == likely and (day.day - 1) // 7 + 1 == count
    if kind < 0.75:
        return f"{word}L", lambda day: weekday(day) == likely and day.day + 7 > month_length(day)
    field = number_field(rng, 0, 7, likely)
    return field.text, lambda day: field.test(weekday(day)) or (weekday(day) == 0 and field.test(7))


def weekday(day: date) -> int:
    return day.isoweekday() % 7


def expression(rng: random.Random, near: datetime, seconds: bool) -> Expression:
    """A random expression that has much to do around a wall time."""
    second = number_field(rng, 0, 59) if seconds else Field("0", lambda n: n == 0)
    minute = number_field(rng, 0, 59, near.minute if rng.random() < 0.3 else None)
    hour = number_field(rng, 0, 23, (near.hour + rng.choice([-2, -1, 0, 0, 1, 2])) % 24)
    dom, dom_test = dom_field(rng, near.day)
    dow, dow_test = dow_field(rng, weekday(near.date()))
    month = number_field(rng, 1, 12, near.month) if rng.random() < 0.3 else Field("*", lambda n: True)
    both = dom[0] in "*?" or dow[0] in "*?"

    def day(each: date) -> bool:
        days = dom_test(each) and dow_test(each) if both else dom_test(each) or dow_test(each)
        return month.test(each.month) and days

    texts = [minute.text, hour.text, dom, month.text, dow]
    text = " ".join([second.text, *texts] if seconds else texts)
    return Expression(text, second, minute, hour, functools.cache(day))


def fires(each: Expression, offsets: list[int], first: int, unit: int, gap: str, fold: str) -> list[int]:
    """Walks a window; `unit` ticks are a minute, and `offsets[0]` belongs to the tick before `first`."""
    limit = 180 * unit
    fixed = not each.wild
    hidden = None
    found = []
    for index, now in enumerate(offsets[1:]):
        tick = first + index
        before = offsets[index]
        filled = fixed and gap == "run" and 0 < now - before < limit
        if filled and any(matches(each, wall, unit) for wall in range(tick + before, tick + now)):
            found.append(tick)
            continue
        if now < before and fixed and fold == "first" and before - now <= limit:
            hidden = tick + before
        if hidden is not None and tick + now < hidden:
            continue
        hidden = None
        if matches(each, tick + now, unit):
            found.append(tick)
    return found


def matches(each: Expression, wall: int, unit: int) -> bool:
    minutes, rest = divmod(wall, unit)
    return (
        each.minute.test(minutes % 60)
        and each.hour.test(minutes // 60 % 24)
        and each.second.test(rest)
        and each.day(day_of(minutes // DAY))
    )


@functools.cache
def day_of(number: int) -> date:
    return date(1970, 1, 1) + timedelta(days=number)


def compare(rng: random.Random, name: str, middle: int, seconds: bool, count: int) -> int:
    """Compares `count` expressions in a window around the UTC minute `middle`; says how many it could."""
    unit = 60 if seconds else 1
    half = 2 * HOUR if seconds else 27 * HOUR
    first = (middle - half) * unit
    offsets = [offset(name, middle - half - 1) * unit]
    for minute in range(middle - half, middle + half):
        offsets += [offset(name, minute) * unit] * unit
    near = EPOCH + timedelta(minutes=middle + offset(name, middle - 1))
    compared = 0
    for _ in range(count):
        each = expression(rng, near, seconds)
        gap = "skip" if rng.random() < 0.15 else "run"
        fold = "both" if rng.random() < 0.15 else "first"
        expected = fires(each, offsets, first, unit, gap, fold)
        what = f"seed {SEED}: Cron({each.text!r}, {name!r}, {seconds=}, {gap=}, {fold=})"
        try:
            cron = Cron(each.text, tz=name, seconds=seconds, gap=gap, fold=fold)  # type: ignore[arg-type]
        except InvalidSchedule:
            # Refused because it never fires: then the oracle must not have found anything either.
            assert not expected, what
            continue
        compared += 1
        ticks = timedelta(minutes=1) / unit
        after, end = EPOCH + first * ticks, EPOCH + (first + len(offsets) - 1) * ticks
        got = []
        at = cron.next(after - timedelta(microseconds=1))
        while at is not None and at < end:
            got.append((at - EPOCH) // ticks)
            at = cron.next(at)
        assert got == expected, what
        # Anywhere, and right at the change: the last instant before a gap is where a search goes wrong.
        for start in [*rng.sample(range(len(offsets) - 1), 2), *(half * unit + n for n in (-2, -1, 0, 1))]:
            asked = after + start * ticks + rng.choice([0, 0, 1e-6, 59 / 60, 0.99999]) * ticks
            later = [tick for tick in expected if EPOCH + tick * ticks > asked]
            at = cron.next(asked)
            if later:
                assert at is not None, (what, asked)
                assert (at - EPOCH) // ticks == later[0], (what, asked)
            else:
                assert at is None or at >= end, (what, asked)
    return compared


def test_the_zones_have_what_it_takes() -> None:
    assert len(ZONES) >= 30
    jumps = {offset(name, at) - offset(name, at - 1) for name in ZONES for at in changes(name)}
    assert {60, -60, 30, -30, 120, -120, -180, 24 * HOUR} <= jumps, "gaps, folds, half hours, days that never were"


def test_cron_agrees_with_the_oracle(capsys: pytest.CaptureFixture[str]) -> None:
    rng = random.Random(SEED)
    compared = 0
    while compared < CASES:
        name = rng.choice(ZONES)
        moments = changes(name)
        at_a_change = moments and rng.random() < 0.93
        middle = rng.choice(moments) if at_a_change else rng.randrange(0, 40 * 365 * DAY)
        compared += compare(rng, name, middle, seconds=False, count=PER_WINDOW)
    with capsys.disabled():
        print(f"\ncron oracle: {compared:,} expressions agreed, seed {SEED}")


def test_cron_with_seconds_agrees_with_the_oracle() -> None:
    rng = random.Random(SEED + 1)
    compared = 0
    while compared < CASES // 60:
        name = rng.choice([name for name in ZONES if changes(name)])
        compared += compare(rng, name, rng.choice(changes(name)), seconds=True, count=PER_WINDOW)


@pytest.mark.parametrize("name", ZONES)
def test_every_zone_meets_the_oracle_at_its_last_changes(name: str) -> None:
    rng = random.Random(f"{SEED} {name}")
    for middle in changes(name)[-2:]:
        compare(rng, name, middle, seconds=False, count=4)
