"""`RRule`: against dateutil in wall time, and through gaps and folds, which dateutil does not know."""

from __future__ import annotations

import random
import re
import time
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import pytest
from dateutil.rrule import rrulestr

from redisched.cron import Cron, RRule
from redisched.errors import InvalidSchedule

SEED = 5545
LAST = datetime.fromisoformat("2079-12-31")
DAYS = ["MO", "TU", "WE", "TH", "FR", "SA", "SU"]


def wall(text: str) -> datetime:
    return datetime.fromisoformat(text)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def times(rule: RRule, after: str, count: int) -> list[str]:
    return [at.strftime("%Y-%m-%dT%H:%M") for at in rule.preview(utc(after), count)]


def random_rule(rng: random.Random) -> str:
    """A random rule of the parts that RFC 5545 allows together."""
    freq = rng.choice(["DAILY", "WEEKLY", "MONTHLY", "YEARLY"])
    parts = [f"FREQ={freq}"]

    def some(low: int, high: int, negative: bool = False) -> str:
        picked = [rng.randint(low, high) * (rng.choice([1, -1]) if negative else 1) for _ in range(rng.randint(1, 3))]
        return ",".join(map(str, picked))

    def maybe(chance: float) -> bool:
        return rng.random() < chance

    by_days = False
    if maybe(0.4):
        parts.append(f"INTERVAL={rng.randint(1, 5)}")
    if maybe(0.25):
        parts.append(f"BYMONTH={some(1, 12)}")
    if freq != "WEEKLY" and maybe(0.35):
        parts.append(f"BYMONTHDAY={some(1, 31, negative=True)}")
        by_days = True
    if freq == "YEARLY" and maybe(0.2):
        parts.append(f"BYYEARDAY={some(1, 366, negative=True)}")
        by_days = True
    weekno = freq == "YEARLY" and maybe(0.2)
    if weekno:
        parts.append(f"BYWEEKNO={some(1, 51)}")
        by_days = True
    if maybe(0.5):
        picked = rng.sample(DAYS, rng.randint(1, 3))
        if freq in ("MONTHLY", "YEARLY") and not weekno and maybe(0.5):
            # dateutil fails on a 20th Monday of a month.
            most = 5 if freq == "MONTHLY" or "BYMONTH=" in ";".join(parts) else 20
            picked = [f"{rng.choice([1, -1]) * rng.randint(1, most)}{day}" for day in picked]
        parts.append(f"BYDAY={','.join(picked)}")
        by_days = True
    for part, high in (("BYHOUR", 23), ("BYMINUTE", 59), ("BYSECOND", 59)):
        if maybe(0.2):
            parts.append(f"{part}={some(0, high)}")
    # dateutil's first week begins at dtstart and its positions with it; the RFC's week is whole.
    if by_days and freq in ("MONTHLY", "YEARLY") and maybe(0.25):
        parts.append(f"BYSETPOS={some(1, 4, negative=True)}")
    if maybe(0.3):
        parts.append(f"WKST={rng.choice(DAYS)}")
    if maybe(0.15):
        parts.append(f"COUNT={rng.randint(1, 40)}")
    elif maybe(0.15):
        parts.append(f"UNTIL={rng.randint(2027, 2033)}0615T120000")
    rng.shuffle(parts)
    return ";".join(parts)


def test_wall_times_are_dateutils() -> None:
    """800 random rules in UTC, where wall time and instants are the same."""
    rng = random.Random(SEED)
    compared = 0
    while compared < 800:
        text = random_rule(rng)
        dtstart = wall("2026-01-01") + timedelta(days=rng.randrange(800), minutes=rng.randrange(1_440))
        refused = ""
        try:
            rule = RRule(text, dtstart=dtstart)
        except InvalidSchedule as error:
            refused = str(error)
        if refused:
            # dateutil would look up to the year 9999 for each of them, which takes seconds.
            assert "never fires" in refused, (SEED, text, dtstart)
            continue
        # dateutil looks for the next time up to the year 9999 if it may; a bound keeps it to this century.
        count = int(match[1]) if (match := re.search(r"COUNT=(\d+)", text)) else 25
        bounded = re.sub(r"COUNT=\d+;?", "", text).rstrip(";")
        if "UNTIL" not in text:
            bounded += f";UNTIL={LAST:%Y%m%dT%H%M%S}"
        oracle = islice(rrulestr(bounded, dtstart=dtstart), min(count, 25))
        expected = [at.replace(tzinfo=UTC) for at in oracle]
        begin = dtstart.replace(tzinfo=UTC) - timedelta(seconds=1)
        got = [at for at in rule.preview(begin, 25) if at <= LAST.replace(tzinfo=UTC)]
        assert got == expected, (SEED, text, dtstart)
        for at in rng.sample(expected, min(2, len(expected))):
            assert rule.next(at - timedelta(microseconds=1)) == at
        compared += 1


@pytest.mark.parametrize(
    ("rule", "dtstart", "expected"),
    [
        ("FREQ=DAILY", "2026-01-01T09:00", ["2026-01-01T09:00", "2026-01-02T09:00"]),
        ("RRULE:freq=weekly;byday=mo,fr", "2026-01-01T09:00", ["2026-01-02T09:00", "2026-01-05T09:00"]),
        ("FREQ=MONTHLY", "2026-01-31T09:00", ["2026-01-31T09:00", "2026-03-31T09:00"]),
        ("FREQ=MONTHLY;BYMONTHDAY=-1", "2026-01-31T09:00", ["2026-01-31T09:00", "2026-02-28T09:00"]),
        ("FREQ=MONTHLY;BYDAY=-1FR", "2026-01-01T17:00", ["2026-01-30T17:00", "2026-02-27T17:00"]),
        (
            "FREQ=MONTHLY;BYDAY=MO,2TU",
            "2026-01-01T17:00",
            ["2026-01-05T17:00", "2026-01-12T17:00", "2026-01-13T17:00"],
        ),
        (
            "FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1",
            "2026-01-01T17:00",
            ["2026-01-30T17:00", "2026-02-27T17:00"],
        ),
        ("FREQ=YEARLY", "2024-02-29T00:00", ["2028-02-29T00:00", "2032-02-29T00:00"]),
        ("FREQ=YEARLY;INTERVAL=100;BYMONTH=2;BYMONTHDAY=29", "2000-02-29T00:00", ["2400-02-29T00:00"]),
        ("FREQ=YEARLY;BYWEEKNO=1;BYDAY=MO", "2026-01-01T00:00", ["2027-01-04T00:00"]),
        ("FREQ=DAILY;COUNT=2", "2026-01-01T09:00", ["2026-01-01T09:00", "2026-01-02T09:00"]),
        ("FREQ=DAILY;UNTIL=20260102", "2026-01-01T09:00", ["2026-01-01T09:00", "2026-01-02T09:00"]),
        ("FREQ=DAILY;UNTIL=20260102T085959", "2026-01-01T09:00", ["2026-01-01T09:00"]),
        ("FREQ=DAILY;UNTIL=20260102T090000Z", "2026-01-01T09:00", ["2026-01-01T09:00", "2026-01-02T09:00"]),
    ],
)
def test_what_rules_mean(rule: str, dtstart: str, expected: list[str]) -> None:
    made = RRule(rule, dtstart=wall(dtstart))
    after = "2025-12-31" if dtstart > "2025" else dtstart
    assert times(made, after, len(expected)) == expected
    if "COUNT" in rule or "UNTIL" in rule:
        assert times(made, after, 9) == expected


def test_gaps_and_folds_are_those_of_a_fixed_cron_time() -> None:
    for tz in (
        "America/New_York",
        "Europe/Berlin",
        "Australia/Lord_Howe",
        "Pacific/Apia",
        "America/Sao_Paulo",
    ):
        for clock in ("00:00", "01:30", "02:00", "02:30", "12:00"):
            hour, minute = map(int, clock.split(":"))
            for gap in ("run", "skip"):
                for fold in ("first", "both"):
                    options: dict[str, Any] = {"tz": tz, "gap": gap, "fold": fold}
                    rule = RRule("FREQ=DAILY", dtstart=wall(f"2010-01-01T{clock}"), **options)
                    cron = Cron(f"{minute} {hour} * * *", **options)
                    for after in ("2011-12-20", "2018-10-25", "2026-03-01", "2026-10-20"):
                        assert rule.preview(utc(after), 30) == cron.preview(utc(after), 30)


def test_an_aware_dtstart_becomes_wall_time() -> None:
    rule = RRule("FREQ=DAILY", dtstart=utc("2026-01-01T14:00"), tz="America/New_York")
    assert rule.dtstart == wall("2026-01-01T09:00")
    assert times(rule, "2026-07-01", 1) == ["2026-07-01T13:00"]
    assert rule.to_dict() == {
        "kind": "rrule",
        "rule": "FREQ=DAILY",
        "dtstart": "2026-01-01T09:00:00",
        "tz": "America/New_York",
    }


def test_without_dtstart_only_what_needs_none() -> None:
    assert times(RRule("FREQ=WEEKLY;BYDAY=MO;BYHOUR=9"), "2026-01-01", 1) == ["2026-01-05T09:00"]
    assert times(RRule("FREQ=DAILY", start=utc("2026-01-01T10:30")), "2020-01-01", 1) == ["2026-01-01T10:30"]
    for text in (
        "FREQ=DAILY;INTERVAL=2",
        "FREQ=DAILY;COUNT=3",
        "FREQ=WEEKLY",
        "FREQ=MONTHLY",
        "FREQ=YEARLY;BYMONTH=2",
    ):
        with pytest.raises(InvalidSchedule, match="give dtstart"):
            RRule(text)


def test_bounds() -> None:
    rule = RRule("FREQ=DAILY", dtstart=wall("2026-01-01T09:00"), start=utc("2026-02-01"), end=utc("2026-02-02T09:00"))
    assert times(rule, "2020-01-01", 9) == ["2026-02-01T09:00", "2026-02-02T09:00"]


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("", "NAME=VALUE"),
        ("DAILY", "NAME=VALUE"),
        ("INTERVAL=2", "FREQ"),
        ("FREQ=SOMETIMES", "FREQ"),
        ("FREQ=HOURLY", "Every"),
        ("FREQ=MINUTELY", "Every"),
        ("FREQ=SECONDLY", "Every"),
        ("FREQ=DAILY;INTERVAL=0", "INTERVAL"),
        ("FREQ=DAILY;INTERVAL=-1", "INTERVAL"),
        ("FREQ=DAILY;INTERVAL=99999999999", "INTERVAL"),
        ("FREQ=DAILY;COUNT=0", "COUNT"),
        ("FREQ=DAILY;COUNT=3;UNTIL=20300101", "COUNT"),
        ("FREQ=DAILY;FREQ=DAILY", "given twice"),
        ("FREQ=DAILY;BYEASTER=0", "BYEASTER"),
        ("FREQ=DAILY;BYMONTH=13", "BYMONTH"),
        ("FREQ=DAILY;BYMONTH=-1", "BYMONTH"),
        ("FREQ=DAILY;BYMONTHDAY=0", "BYMONTHDAY"),
        ("FREQ=DAILY;BYHOUR=24", "BYHOUR"),
        ("FREQ=DAILY;BYHOUR=\u0665", "BYHOUR"),
        ("FREQ=DAILY;BYDAY=XX", "BYDAY"),
        ("FREQ=DAILY;BYDAY=2MO", "BYDAY"),
        ("FREQ=MONTHLY;BYDAY=0MO", "BYDAY"),
        ("FREQ=MONTHLY;BYWEEKNO=3", "BYWEEKNO"),
        ("FREQ=MONTHLY;BYYEARDAY=3", "BYYEARDAY"),
        ("FREQ=WEEKLY;BYMONTHDAY=3", "BYMONTHDAY"),
        ("FREQ=DAILY;BYSETPOS=1", "BYSETPOS"),
        ("FREQ=DAILY;WKST=XX", "WKST"),
        ("FREQ=DAILY;UNTIL=tomorrow", "UNTIL"),
        ("FREQ=DAILY;UNTIL=20261301", "UNTIL"),
        ("FREQ=DAILY;UNTIL=20200101", "never fires"),
        ("FREQ=DAILY;UNTIL=20200101T000000Z", "never fires"),
        ("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30", "never fires"),
        ("FREQ=DAILY;BYMONTH=4;BYMONTHDAY=31", "never fires"),
        ("FREQ=MONTHLY;BYDAY=MO;BYSETPOS=6", "never fires"),
        ("FREQ=YEARLY;COUNT=10000;BYDAY=MO;BYMONTHDAY=29,30;BYSETPOS=9", "COUNT|never fires"),
        ("FREQ=DAILY;" * 200, "at most"),
    ],
)
def test_bad_ones_are_refused_quickly(rule: str, words: str) -> None:
    started = time.process_time()
    with pytest.raises(InvalidSchedule, match=words):
        RRule(rule, dtstart=wall("2026-01-01T09:00"))
    assert time.process_time() - started < 1


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({"dtstart": "now"}, "dtstart"),
        ({"tz": "Nowhere"}, "time zone"),
        ({"gap": "x"}, "gap"),
        ({"start": utc("2026-01-02"), "end": utc("2026-01-01")}, "before the start"),
        ({"start": utc("2026-01-01T10:00"), "end": utc("2026-01-01T11:00")}, "never fires"),
    ],
)
def test_bad_options_are_refused(kwargs: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidSchedule, match=words):
        RRule("FREQ=DAILY", **{"dtstart": wall("2026-01-01T09:00")} | kwargs)


def test_values() -> None:
    one = RRule("FREQ=DAILY", dtstart=wall("2026-01-01T09:00"), tz="Europe/Paris")
    two = RRule("FREQ=DAILY", dtstart=utc("2026-01-01T08:00"), tz="Europe/Paris")
    assert one == two
    assert hash(one) == hash(two)
    assert repr(one) == "RRule('FREQ=DAILY', dtstart=datetime.fromisoformat('2026-01-01T09:00:00'), tz='Europe/Paris')"


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("FREQ=DAILY", "Every day at 09:00, UTC time."),
        ("FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,FR", "Every 2 weeks on Monday and Friday at 09:00, UTC time."),
        ("FREQ=WEEKLY", "Every week on Thursday at 09:00, UTC time."),
        ("FREQ=MONTHLY;BYDAY=-1FR;BYHOUR=17", "Every month on the last Friday at 17:00, UTC time."),
        ("FREQ=MONTHLY", "Every month on day 1 of the month at 09:00, UTC time."),
        ("FREQ=YEARLY;COUNT=3", "Every year on 1 January at 09:00, 3 times, UTC time."),
        ("FREQ=YEARLY;BYMONTH=3,4;UNTIL=20300101T000000Z", None),
        ("FREQ=MONTHLY;BYDAY=MO,TU;BYSETPOS=1,-1", None),
        ("FREQ=DAILY;BYHOUR=1,2,3,4;BYMINUTE=0,30", None),
        ("FREQ=YEARLY;BYYEARDAY=100;BYWEEKNO=15", None),
    ],
)
def test_the_words(rule: str, words: str | None) -> None:
    said = RRule(rule, dtstart=wall("2026-01-01T09:00")).describe()
    assert words is None or said == words
    assert said.endswith("UTC time.")
