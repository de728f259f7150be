"""`Every`: intervals of elapsed time. Tries to make them drift, stall or answer in the past."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redisched.cron import Every
from redisched.errors import InvalidSchedule

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTES = timedelta(minutes=10)
INSTANTS = st.datetimes(
    datetime.fromisoformat("1900-01-01"), datetime.fromisoformat("2200-01-01"), timezones=st.just(UTC)
)
INTERVALS = st.integers(1, 10**10).map(lambda ms: timedelta(milliseconds=ms))


def test_without_an_anchor_it_counts_from_the_time_asked() -> None:
    assert Every(MINUTES).next(NOON) == NOON + MINUTES
    assert Every(MINUTES).preview(NOON, 2) == [NOON + MINUTES, NOON + 2 * MINUTES]


def test_an_anchor_sets_the_phase_for_ever() -> None:
    every = Every(MINUTES, anchor=NOON + timedelta(minutes=3))
    assert every.next(NOON) == NOON + timedelta(minutes=3)
    assert every.next(NOON + timedelta(minutes=3)) == NOON + timedelta(minutes=13)
    assert every.next(NOON - timedelta(days=400, minutes=1)) == NOON - timedelta(days=400) + timedelta(minutes=3)


def test_a_start_is_the_first_time() -> None:
    every = Every(MINUTES, start=NOON, end=NOON + timedelta(minutes=25))
    assert every.preview(NOON - timedelta(days=9), 9) == [NOON, NOON + MINUTES, NOON + 2 * MINUTES]
    both = Every(MINUTES, anchor=NOON + timedelta(minutes=3), start=NOON + timedelta(minutes=4))
    assert both.next(NOON) == NOON + timedelta(minutes=13)


def test_after_completion_it_counts_from_the_end_of_the_run() -> None:
    every = Every(MINUTES, after="completion", start=NOON)
    assert every.next(NOON - timedelta(hours=1)) == NOON
    assert every.next(NOON + timedelta(minutes=7)) == NOON + timedelta(minutes=17)


def test_a_registration_fixes_the_phase() -> None:
    assert Every(MINUTES).anchored(NOON) == Every(MINUTES, anchor=NOON)
    for settled in (
        Every(MINUTES, anchor=NOON),
        Every(MINUTES, start=NOON),
        Every(MINUTES, after="completion"),
    ):
        assert settled.anchored(NOON + MINUTES) is settled


@given(INTERVALS, INSTANTS, INSTANTS)
def test_times_are_later_in_phase_and_whole_milliseconds(
    interval: timedelta, anchor: datetime, after: datetime
) -> None:
    for every in (Every(interval), Every(interval, anchor=anchor), Every(interval, after="completion")):
        found = every.next(after)
        assert found is not None
        assert after < found <= after + interval
        assert found.microsecond % 1_000 == 0
    first = Every(interval, anchor=anchor).next(after)
    assert first is not None
    assert Every(interval, anchor=anchor).next(first) == first + interval


@given(INTERVALS, INSTANTS)
def test_nothing_lies_before_the_start(interval: timedelta, start: datetime) -> None:
    found = Every(interval, start=start).next(datetime(1800, 1, 1, tzinfo=UTC))
    assert found is not None
    assert start <= found < start + timedelta(milliseconds=1)


def test_the_end_of_the_calendar() -> None:
    assert Every(timedelta(days=36_525)).next(datetime(9950, 1, 1, tzinfo=UTC)) is None


@pytest.mark.parametrize(
    ("interval", "kwargs", "words"),
    [
        (60, {}, "timedelta"),
        (timedelta(0), {}, "whole milliseconds"),
        (timedelta(seconds=-1), {}, "whole milliseconds"),
        (timedelta(microseconds=1), {}, "whole milliseconds"),
        (timedelta(microseconds=1_001), {}, "whole milliseconds"),
        (timedelta.max, {}, "100 years"),
        (MINUTES, {"after": "lunch"}, "after is 'lunch'"),
        (MINUTES, {"anchor": datetime.fromisoformat("2026-01-01")}, "anchor is"),
        (MINUTES, {"anchor": NOON, "after": "completion"}, "anchor does not go"),
        (MINUTES, {"start": NOON, "end": NOON - MINUTES}, "before the start"),
        (MINUTES, {"anchor": NOON, "start": NOON + MINUTES / 4, "end": NOON + MINUTES / 2}, "never fires"),
        (MINUTES, {"max_runs": -1}, "max_runs"),
    ],
)
def test_bad_ones_are_refused(interval: Any, kwargs: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidSchedule, match=words):
        Every(interval, **kwargs)


def test_a_naive_time_is_refused() -> None:
    with pytest.raises(InvalidSchedule, match="without a time zone"):
        Every(MINUTES).next(datetime.fromisoformat("2026-01-01"))


@pytest.mark.parametrize(
    ("every", "words"),
    [
        (Every(timedelta(hours=1)), "Every hour."),
        (Every(timedelta(minutes=90)), "Every 1 hour 30 minutes."),
        (Every(timedelta(seconds=2.5)), "Every 2 seconds 500 milliseconds."),
        (Every(MINUTES, after="completion"), "Every 10 minutes after the end of the run before."),
        (
            Every(MINUTES, anchor=NOON, max_runs=1),
            "Every 10 minutes, in step with 2026-01-01T12:00:00Z, once in all.",
        ),
    ],
)
def test_the_words(every: Every, words: str) -> None:
    assert every.describe() == words


def test_repr_reads_back() -> None:
    every = Every(MINUTES, anchor=NOON)
    assert repr(every) == (
        "Every(datetime.timedelta(seconds=600), anchor=datetime.fromisoformat('2026-01-01T12:00:00Z'))"
    )
