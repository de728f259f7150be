"""`Cron` as a value: what it takes, what it refuses and why, what it says about itself."""

from __future__ import annotations

import copy
import json
import pickle
import time
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from typing import Any

import pytest

from redisched.cron import Cron, Every, RRule, schedule_from_dict
from redisched.errors import InvalidSchedule


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def times(cron: Cron, after: str, count: int) -> list[str]:
    return [at.strftime("%Y-%m-%dT%H:%M:%S") for at in cron.preview(utc(after), count)]


REFUSED = [
    # expression, words that the reason must hold
    ("60 * * * *", ["minute '60'", "between 0 and 59"]),
    ("* 24 * * *", ["hour '24'", "between 0 and 23"]),
    ("* * 0 * *", ["day of month '0'", "between 1 and 31"]),
    ("* * 32 * *", ["day of month '32'"]),
    ("* * * 13 *", ["month '13'", "between 1 and 12"]),
    ("* * * * 8", ["day of week '8'", "between 0 and 7"]),
    ("5-1 * * * *", ["minute '5-1'", "backwards"]),
    ("* * * * fri-sun", ["day of week", "backwards", "5-7"]),
    ("* * * dec-feb *", ["month", "backwards"]),
    ("*/61 * * * *", ["minute '*/61'", "step 61", "60 values"]),
    ("* */25 * * *", ["hour", "step 25"]),
    ("* * */32 * *", ["day of month", "step 32"]),
    ("* * * */13 *", ["month", "step 13"]),
    ("* * * * */9", ["day of week", "step 9"]),
    ("*/0 * * * *", ["minute", "step"]),
    ("*/-1 * * * *", ["minute", "step"]),
    ("R * * * *", ["minute", "'R'", "random"]),
    ("H * * * *", ["minute", "'H'", "hashed"]),
    ("H(0-5) * * * *", ["minute"]),
    ("0 0 15W * *", ["day of month", "'W'"]),
    ("0 0 LW * *", ["day of month"]),
    ("0 0 W * *", ["day of month", "'W'"]),
    ("0 0 * * L", ["day of week", "'L'"]),
    ("L * * * *", ["minute", "'L'"]),
    ("0 0 L-31 * *", ["day of month", "0 to 30"]),
    ("0 0 L/2 * *", ["day of month"]),
    ("0 0 * * 1#6", ["day of week", "1 to 5"]),
    ("0 0 * * 1#0", ["day of week", "1 to 5"]),
    ("0 0 * * mon#050", ["day of week"]),
    ("0 0 * * 5L-6", ["day of week"]),
    ("0 0 * * 5L#1", ["day of week"]),
    ("0 0 * * 5L/3", ["day of week"]),
    ("0 0 * * 1-5#2", ["day of week"]),
    ("0 0 * * *#1", ["day of week"]),
    ("0 0 * * friday", ["day of week", "write 'fri'"]),
    ("0 0 * january *", ["month", "write 'jan'"]),
    ("0 0 mon * *", ["day of month", "'mon'"]),
    ("? * * * *", ["minute", "'?'"]),
    ("* * ?,1 * *", ["day of month", "'?'"]),
    ("* * * * ?/2", ["day of week", "'?'"]),
    ("* * * ? *", ["month", "'?'"]),
    ("1,,2 * * * *", ["minute", "missing"]),
    ("1, * * * *", ["minute", "missing"]),
    ("1- * * * *", ["minute", "missing"]),
    ("-1 * * * *", ["minute", "missing"]),
    ("/5 * * * *", ["minute", "missing"]),
    ("1/2/3 * * * *", ["minute", "step"]),
    ("1-2-3 * * * *", ["minute"]),
    ("*-5 * * * *", ["minute"]),
    ("*5 * * * *", ["minute"]),
    ("5* * * * *", ["minute"]),
    ("+5 * * * *", ["minute"]),
    ("5.0 * * * *", ["minute"]),
    ("1_0 * * * *", ["minute"]),
    ("0x5 * * * *", ["minute"]),
    ("99999999999999999999 * * * *", ["minute"]),
    ("9" * 900 + " * * * *", ["minute"]),
    ("\u0665 * * * *", ["does not belong"]),
    ("\u00b9 * * * *", ["does not belong"]),
    ("\uff15 * * * *", ["does not belong"]),
    ("*\u00a0* * * *", ["does not belong"]),
    ("* * * * *\x00", ["does not belong"]),
    ("", ["0 fields", "takes 5"]),
    ("   ", ["0 fields"]),
    ("* * * *", ["4 fields", "takes 5"]),
    ("* * * * * *", ["6 fields", "seconds=True"]),
    ("* * * * * * *", ["7 fields"]),
    ("* " * 600, ["longer than"]),
    ("@", ["unknown alias", "@daily"]),
    ("@every 5m", ["unknown alias"]),
    ("@dailyy", ["unknown alias"]),
    ("@daily *", ["unknown alias"]),
    ("@reboot", ["names no time"]),
    ("0 0 30 2 *", ["day of month '30'", "never"]),
    ("0 0 31 2,4,6,9,11 *", ["never"]),
    ("0 0 L-30 4 *", ["never"]),
    ("0 0 */31 * 1#2", ["never"]),
]


@pytest.mark.parametrize(("expr", "words"), REFUSED, ids=lambda v: repr(v)[:40])
def test_a_refusal_names_the_field_and_the_reason(expr: str, words: list[str]) -> None:
    with pytest.raises(InvalidSchedule) as caught:
        Cron(expr)
    for word in words:
        assert word.lower() in str(caught.value).lower()
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({"tz": "Mars/Olympus"}, "time zone 'Mars/Olympus' is not known"),
        ({"tz": "America/New_Yrok"}, "did you mean 'America/New_York'"),
        ({"tz": ""}, "IANA name"),
        ({"tz": None}, "IANA name"),
        ({"tz": "../../etc/passwd"}, "not known"),
        ({"tz": "/etc/localtime"}, "not known"),
        ({"tz": "localtime"}, "not known"),
        ({"tz": "America"}, "not known"),
        ({"tz": "+01:00"}, "not known"),
        ({"gap": "maybe"}, "gap is 'maybe': it can be 'run' or 'skip'"),
        ({"fold": "last"}, "fold is 'last'"),
        ({"max_runs": 0}, "max_runs is 0"),
        ({"max_runs": True}, "max_runs is True"),
        ({"max_runs": 1.5}, "max_runs is 1.5"),
        (
            {"start": datetime.fromisoformat("2026-01-01")},
            "start is 2026-01-01T00:00:00, without a time zone",
        ),
        ({"end": "tomorrow"}, "end is 'tomorrow'"),
        (
            {"start": utc("2026-02-01"), "end": utc("2026-01-01")},
            "the end 2026-01-01T00:00:00Z is before the start",
        ),
        (
            {"start": utc("2026-01-01T10:00"), "end": utc("2026-01-01T11:00")},
            "never fires: nothing lies between",
        ),
    ],
)
def test_bad_options_are_refused(kwargs: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidSchedule) as caught:
        Cron("0 9 * * *", **kwargs)
    assert words in str(caught.value)


def test_an_expression_that_is_no_text_is_refused() -> None:
    with pytest.raises(InvalidSchedule, match="give a text"):
        Cron(5)  # type: ignore[arg-type]


def test_times_that_the_clocks_always_skip_are_refused() -> None:
    """Each second Sunday of March, New York's clocks jump from 02:00 to 03:00, so this can never happen."""
    with pytest.raises(InvalidSchedule, match="never fires in America/New_York"):
        Cron("*/10 2 * 3 sun#2", tz="America/New_York")
    with pytest.raises(InvalidSchedule, match="never fires"):
        Cron("30 2 * 3 sun#2", tz="America/New_York", gap="skip")
    assert times(Cron("30 2 * 3 sun#2", tz="America/New_York"), "2026-01-01", 1) == ["2026-03-08T07:00:00"]
    assert times(Cron("*/10 2 * 3 sun#2", tz="America/Phoenix"), "2026-01-01", 1) == ["2026-03-08T09:00:00"]


@pytest.mark.parametrize("when", [datetime.fromisoformat("2026-01-01"), "2026-01-01T00:00:00Z", None])
def test_a_time_without_a_zone_is_refused(when: Any) -> None:
    with pytest.raises(InvalidSchedule, match="after is"):
        Cron("* * * * *").next(when)


@pytest.mark.parametrize(
    ("expr", "same"),
    [
        ("  0\t9 *  * 1 ", "0 9 * * 1"),
        ("00 09 * * 01", "0 9 * * 1"),
        ("0 9 * * MON", "0 9 * * 1"),
        ("0 9 * * 7", "0 9 * * 0"),
        ("0 9 ? * mon", "0 9 * * 1"),
        ("0 9 * JAN-mar *", "0 9 * 1-3 *"),
        ("0 9 * * 5-7", "0 9 * * 0,5,6"),
        ("0 9 * * Mon/2", "0 9 * * 0,1,3,5"),
        ("0 9 L-0 * *", "0 9 l * *"),
        ("0 9 29-L * *", "0 9 29-31 * *"),
        ("0 9 25-L/3 * *", "0 9 25,28,31 * *"),
        ("0 9 * * L5", "0 9 * * friL"),
        ("0 9 * * sun#2", "0 9 * * 7#2"),
        ("59/15 9 * * *", "59 9 * * *"),
        ("1/60 9 * * *", "1 9 * * *"),
        ("5-5 9 * * *", "5 9 * * *"),
        ("@Hourly", "0 * * * *"),
        ("@weekly", "0 0 * * 0"),
        ("@midnight", "@daily"),
        ("@annually", "@yearly"),
    ],
)
def test_two_spellings_of_one_thing(expr: str, same: str) -> None:
    assert times(Cron(expr), "2025-12-31T12:34:56", 40) == times(Cron(same), "2025-12-31T12:34:56", 40)


def test_the_traps() -> None:
    new_york = "America/New_York"
    assert times(Cron("30 1 * * *", tz=new_york), "2025-11-02T04:00", 2) == [
        "2025-11-02T05:30:00",
        "2025-11-03T06:30:00",
    ]
    assert times(Cron("*/10 2 * * *", tz=new_york), "2026-03-08T00:00", 1) == ["2026-03-09T06:00:00"]
    assert times(Cron("0 0 * * *", tz="America/Sao_Paulo"), "2018-11-04T00:00", 1) == ["2018-11-04T03:00:00"]
    # Friday 30 December 2011 did not happen in Samoa.
    assert times(Cron("0 12 * * 5", tz="Pacific/Apia"), "2011-12-24T00:00", 1) == ["2012-01-05T22:00:00"]
    assert times(Cron("0 16 */2 * sat"), "2026-01-01", 2) == ["2026-01-03T16:00:00", "2026-01-17T16:00:00"]
    assert times(Cron("0 0 31 2 0"), "2026-01-01", 1) == ["2026-02-01T00:00:00"]


def test_gap_and_fold_can_be_chosen() -> None:
    new_york = "America/New_York"
    assert times(Cron("30 2 * * *", tz=new_york), "2026-03-08T00:00", 1) == ["2026-03-08T07:00:00"]
    assert times(Cron("30 2 * * *", tz=new_york, gap="skip"), "2026-03-08T00:00", 1) == ["2026-03-09T06:30:00"]
    both = Cron("30 1 * * *", tz=new_york, fold="both")
    assert times(both, "2025-11-02T04:00", 3) == [
        "2025-11-02T05:30:00",
        "2025-11-02T06:30:00",
        "2025-11-03T06:30:00",
    ]


def test_several_missed_times_become_one() -> None:
    cron = Cron("0,15,30,45 2,3 * * *", tz="Europe/Berlin")
    assert times(cron, "2026-03-29T00:00", 3) == [
        "2026-03-29T01:00:00",
        "2026-03-29T01:15:00",
        "2026-03-29T01:30:00",
    ]


def test_start_and_end_are_part_of_the_time() -> None:
    cron = Cron("0 9 * * *", start=utc("2026-01-02T09:00"), end=utc("2026-01-04T09:00"))
    assert times(cron, "2020-01-01", 9) == [
        "2026-01-02T09:00:00",
        "2026-01-03T09:00:00",
        "2026-01-04T09:00:00",
    ]
    late = Cron("0 9 * * *", start=utc("2026-01-02T09:00") + timedelta(microseconds=1))
    assert times(late, "2020-01-01", 1) == ["2026-01-03T09:00:00"]
    assert cron.next(utc("2026-01-04T09:00")) is None


def test_max_runs_is_carried_not_counted() -> None:
    cron = Cron("0 9 * * *", max_runs=2)
    assert cron.max_runs == 2
    assert len(cron.preview(utc("2026-01-01"), 5)) == 5


def test_the_ends_of_the_calendar() -> None:
    for tz in ("UTC", "America/New_York", "Pacific/Kiritimati", "Asia/Tokyo"):
        cron = Cron("* * * * *", tz=tz)
        assert cron.next(datetime.max.replace(tzinfo=UTC)) is None
        assert cron.next(datetime.max.replace(tzinfo=timezone(-timedelta(hours=12)))) is None
        first = cron.next(datetime.min.replace(tzinfo=UTC))
        assert first is not None
        assert first.year == 1
        assert cron.next(datetime.min.replace(tzinfo=timezone(timedelta(hours=12)))) is not None
        assert Cron("0 0 29 2 *", tz=tz).next(utc("9996-03-01")) is None
    assert times(Cron("0 0 1 1 *"), "9998-06-01", 5) == ["9999-01-01T00:00:00"]


def test_the_rarest_dates() -> None:
    assert times(Cron("0 0 * 2 mon#5"), "2026-01-01", 2) == ["2044-02-29T00:00:00", "2072-02-29T00:00:00"]
    assert times(Cron("0 0 29 2 *"), "2096-03-01", 1) == ["2104-02-29T00:00:00"]
    # 40 years without a Saturday that is a 29 February, because 2100 has no such day.
    assert times(Cron("0 0 * 2 sat#5", tz="Europe/Paris"), "2076-03-01", 1) == ["2116-02-28T23:00:00"]


@pytest.mark.parametrize(
    "expr",
    ["0 0 29 2 */7", "*/59 */23 L-30 */7 6#5", "0 0 29 2 *", "* * L 2 *", "59 23 31 12 7L", "0 3 29-L 2 *"],
)
def test_every_search_is_quick(expr: str) -> None:
    for tz in ("UTC", "Africa/Casablanca", "Europe/Dublin"):
        cron = Cron(expr, tz=tz)
        cron.preview(utc("2026-01-01"), 3)
        for year in (1, 1800, 1969, 2026, 2400, 9000, 9990):
            started = time.process_time()
            cron.next(datetime(year, 3, 1, tzinfo=UTC))
            assert time.process_time() - started < 0.25, (tz, year)


def test_equal_values_are_equal_and_hash_alike() -> None:
    one = Cron("0 9 * * 1", tz="Europe/Paris", start=datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))))
    two = Cron(" 0  9 * * 1", tz="Europe/Paris", start=utc("2026-01-01"))
    assert one == two
    assert hash(one) == hash(two)
    assert len({one, two, Cron("0 9 * * 1", tz="Europe/Rome")}) == 2
    assert one != Every(timedelta(minutes=1))
    with pytest.raises(AttributeError):
        one.tz = "UTC"  # type: ignore[misc]


def test_repr_shows_what_is_not_the_default() -> None:
    assert repr(Cron("@daily")) == "Cron('@daily')"
    cron = Cron("0 0 9 * * 1", tz="Europe/Paris", seconds=True, gap="skip", end=utc("2030-01-01"), max_runs=3)
    assert repr(cron) == (
        "Cron('0 0 9 * * 1', tz='Europe/Paris', end=datetime.fromisoformat('2030-01-01T00:00:00Z'), "
        "max_runs=3, seconds=True, gap='skip')"
    )
    assert eval(repr(cron), {"Cron": Cron, "datetime": datetime}) == cron


RULES = [
    Cron("0 9 * * 1", tz="America/New_York"),
    Cron("*/5 0 9 L * ?", seconds=True, gap="skip", fold="both", start=utc("2026-01-01"), max_runs=7),
    Every(timedelta(minutes=10)),
    Every(timedelta(milliseconds=1_500), anchor=utc("2026-01-01T00:00:00.250")),
    Every(timedelta(hours=1), after="completion", end=utc("2030-01-01")),
    RRule("FREQ=WEEKLY;BYDAY=MO,FR", dtstart=datetime.fromisoformat("2026-01-05T09:00"), tz="Europe/Berlin"),
    RRule("FREQ=DAILY;BYHOUR=9", tz="Asia/Tokyo", gap="skip", fold="both", max_runs=1),
]


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_a_rule_survives_storage_and_pickling(rule: Cron | Every | RRule) -> None:
    for again in (
        schedule_from_dict(json.loads(json.dumps(rule.to_dict()))),
        pickle.loads(pickle.dumps(rule)),
        copy.deepcopy(rule),
    ):
        assert again == rule
        assert repr(again) == repr(rule)
        assert again.preview(utc("2026-03-01"), 5) == rule.preview(utc("2026-03-01"), 5)


def test_what_is_stored_is_the_expression_and_the_zone() -> None:
    assert Cron("0 9 * * 1", tz="America/New_York").to_dict() == {
        "kind": "cron",
        "expr": "0 9 * * 1",
        "tz": "America/New_York",
    }
    assert Cron("@daily").to_dict() == {"kind": "cron", "expr": "@daily", "tz": "UTC"}


@pytest.mark.parametrize(
    "stored",
    [
        {},
        {"kind": "moon"},
        {"kind": "cron"},
        {"kind": "cron", "expr": "* * * * *", "phase": 1},
        {"kind": "cron", "expr": "* * * * *", "start": "soon"},
        {"kind": "cron", "expr": "61 * * * *"},
        {"kind": "every", "interval": "often"},
        {"kind": "every", "interval": float("inf")},
        {"kind": "rrule", "rule": 7},
        None,
        [],
    ],
)
def test_a_stored_schedule_that_is_none_is_refused(stored: Any) -> None:
    with pytest.raises(InvalidSchedule):
        schedule_from_dict(stored)


@pytest.mark.parametrize("count", [-1, 1_000_000])
def test_a_preview_is_bounded(count: int) -> None:
    with pytest.raises(InvalidSchedule, match="preview"):
        Cron("* * * * *").preview(utc("2026-01-01"), count)


def test_a_preview_is_what_next_says() -> None:
    cron = Cron("*/7 */5 * * *", tz="Pacific/Chatham")
    found = cron.preview(utc("2026-04-03"), 500)
    assert all(cron.next(a) == b for a, b in pairwise(found))
    assert cron.preview(utc("2026-04-03"), 0) == []


@pytest.mark.parametrize(
    ("expr", "words"),
    [
        ("* * * * *", "Every minute, UTC time."),
        ("*/15 * * * *", "Every 15 minutes, UTC time."),
        ("@hourly", "Every hour on the hour, UTC time."),
        ("5 * * * *", "At minute 5 of the hour, UTC time."),
        ("0 9 * * 1", "At 09:00 on Monday, UTC time."),
        ("0 9,17 * * 1-5", "At 09:00 and 17:00 on Monday to Friday, UTC time."),
        ("*/10 9-17 * * *", "Every 10 minutes, in the hours 09 to 17, UTC time."),
        ("0 */2 * * *", "Every 2 hours on the hour from midnight, UTC time."),
        ("30 */2 * * *", "At minute 30 of the hour, in every second hour from midnight, UTC time."),
        ("0 0 1,15 * sun", "At 00:00 on days 1 and 15 of the month and also on Sunday, UTC time."),
        ("0 0 */2 * sat", None),
        ("0 0 L 2,12 *", "At 00:00 on the last day of the month in February and December, UTC time."),
        ("0 0 L-3 * *", "At 00:00 3 days before the last day of the month, UTC time."),
        (
            "0 0 * * mon#2,friL",
            "At 00:00 on the second Monday of the month and on the last Friday of the month, UTC time.",
        ),
        ("0 0 * * 6,0", "At 00:00 on Saturday and Sunday, UTC time."),
        ("7-59/13 1-3 1-31 * 1", None),
    ],
)
def test_the_words(expr: str, words: str | None) -> None:
    said = Cron(expr).describe()
    assert words is None or said == words
    assert said[0].isupper()
    assert said.endswith("UTC time.")


def test_the_words_name_zone_and_bounds() -> None:
    cron = Cron("*/5 * * * * *", tz="Asia/Tokyo", seconds=True, start=utc("2026-01-01"), max_runs=10)
    assert cron.describe() == "Every 5 seconds, Asia/Tokyo time, from 2026-01-01T00:00:00Z, 10 times in all."
