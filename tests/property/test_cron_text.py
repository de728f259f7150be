"""Any text at all as an expression, zone or RRULE: it is understood or refused, quickly, and nothing else."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

from hypothesis import example, given, settings
from hypothesis import strategies as st

from redisched.cron import Cron, RRule, schedule_from_dict
from redisched.errors import InvalidSchedule

ATOMS = [
    "*",
    "?",
    "L",
    "L-3",
    "5L",
    "friL",
    "1#2",
    "mon",
    "jan-mar",
    "0",
    "7",
    "59",
    "1-5",
    "*/7",
    "3/4",
    "31",
    "W",
    "H",
]
FIELD = st.lists(st.sampled_from(ATOMS), min_size=1, max_size=3).map(",".join)
NEARLY = st.lists(FIELD, min_size=4, max_size=7).map(" ".join)
JUNK = st.text(alphabet="*/-,#?LlWHR@0123456789 \tabcdefmnoprstuy", max_size=30)
ZONES = st.sampled_from(["UTC", "America/New_York", "Africa/Casablanca", "Australia/Lord_Howe", "Pacific/Apia"])
INSTANTS = st.datetimes(timezones=st.sampled_from([UTC]))
PART = st.sampled_from(
    [
        "FREQ=DAILY",
        "FREQ=WEEKLY",
        "FREQ=MONTHLY",
        "FREQ=YEARLY",
        "FREQ=HOURLY",
        "INTERVAL=0",
        "INTERVAL=2",
        "INTERVAL=9999",
        "COUNT=3",
        "COUNT=10000",
        "UNTIL=20300101",
        "UNTIL=20300101T000000Z",
        "BYMONTH=2",
        "BYMONTHDAY=30",
        "BYMONTHDAY=-1",
        "BYDAY=MO",
        "BYDAY=-1FR",
        "BYDAY=5MO",
        "BYYEARDAY=366",
        "BYWEEKNO=53",
        "BYSETPOS=-1",
        "BYHOUR=2",
        "BYMINUTE=30",
        "BYSECOND=59",
        "WKST=SU",
        "X=1",
        "FREQ",
        "BYDAY=",
    ]
)


@settings(max_examples=1_500, deadline=None)
@given(st.one_of(st.text(max_size=40), JUNK, NEARLY), ZONES, st.booleans(), INSTANTS)
@example("0 0 29 2 1#5", "Africa/Casablanca", False, datetime(2026, 1, 1, tzinfo=UTC))
@example("*/10 2 * 3 sun#2", "America/New_York", False, datetime(2026, 1, 1, tzinfo=UTC))
def test_any_expression(text: str, tz: str, seconds: bool, after: datetime) -> None:
    started = time.process_time()
    try:
        cron = Cron(text, tz=tz, seconds=seconds)
    except InvalidSchedule as error:
        said = str(error)
    else:
        said = ""
    if said:
        assert "cron expression" in said
        return
    found = cron.next(after)
    if found is not None:
        assert found > after
        assert found.tzinfo is UTC
        assert found.microsecond == 0
        assert cron.next(found - timedelta(microseconds=1)) == found
    elif after.year < 9900:
        raise AssertionError(f"{cron!r} has no time after {after}")
    assert cron.describe()
    assert schedule_from_dict(cron.to_dict()) == cron
    assert time.process_time() - started < 2


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=30))
def test_any_zone(name: str) -> None:
    said = "time zone"
    try:
        Cron("* * * * *", tz=name)
    except InvalidSchedule as error:
        said = str(error)
    assert "time zone" in said


@settings(max_examples=600, deadline=None)
@given(st.one_of(st.text(max_size=40), st.lists(PART, max_size=6).map(";".join)), ZONES, INSTANTS, INSTANTS)
def test_any_rrule(text: str, tz: str, dtstart: datetime, after: datetime) -> None:
    started = time.process_time()
    said = "RRULE"
    try:
        rule = RRule(text, dtstart=dtstart.replace(tzinfo=None), tz=tz)
    except InvalidSchedule as error:
        said = str(error)
    else:
        found = rule.next(after)
        assert found is None or found > after
        assert rule.describe()
        assert schedule_from_dict(rule.to_dict()) == rule
    assert "RRULE" in said
    assert time.process_time() - started < 2
