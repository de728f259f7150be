"""Time: tries to lose a millisecond on the way, and to make a movable clock go back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redisched.clock import MovableClock, delta_ms, from_ms, mono_s, to_ms, wall_ms

LAST_MS = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ZONES = st.builds(timezone, st.timedeltas(timedelta(hours=-23), timedelta(hours=23)))


@given(st.integers(0, LAST_MS))
def test_milliseconds_come_back(ms: int) -> None:
    # Floats have no 0.001: a time that loses a millisecond on each way drifts.
    assert to_ms(from_ms(ms)) == ms


@given(st.integers(0, LAST_MS))
def test_a_moment_is_exact(ms: int) -> None:
    # Past the year 2255 a float of seconds is coarser than a microsecond: 998993 is shown for .999.
    assert from_ms(ms) == EPOCH + timedelta(milliseconds=ms)


@given(st.integers(0, LAST_MS - 86_400_000).map(lambda ms: EPOCH + timedelta(milliseconds=ms)), ZONES)
def test_a_zone_changes_nothing(moment: datetime, zone: timezone) -> None:
    # The same instant in Tokyo and in New York is one time.
    if moment.year < 9999 and moment > EPOCH + timedelta(days=2):
        assert to_ms(moment.astimezone(zone)) == to_ms(moment)


@given(st.integers(-(10**12), 10**12))
def test_durations_come_back(ms: int) -> None:
    # timedelta keeps days, seconds and microseconds; none of them may fall out.
    assert delta_ms(timedelta(milliseconds=ms)) == ms


def test_the_two_kinds_of_time() -> None:
    # Wall time in seconds, or monotonic time in milliseconds, would pass most other tests.
    assert abs(wall_ms() / 1000 - datetime.now(UTC).timestamp()) < 60
    first = mono_s()
    assert isinstance(first, float)
    assert 0 <= mono_s() - first < 60


@pytest.mark.parametrize("step", [timedelta(days=1), 86_400, 86_400.0])
def test_a_movable_clock_moves_only_when_told(step: Any) -> None:
    # A clock that runs by itself would make tomorrow's retries due by chance.
    clock = MovableClock(datetime(2027, 1, 1, tzinfo=UTC))
    before = clock.now_ms()
    assert (clock.now(), clock.now_ms()) == (datetime(2027, 1, 1, tzinfo=UTC), before)
    clock.advance(step)
    assert clock.now_ms() == before + 86_400_000


def test_a_movable_clock_can_be_set() -> None:
    # To the very same instant too: a test that sets what it is already at has no bug.
    clock = MovableClock(datetime(2027, 1, 1, tzinfo=UTC))
    for moment in (datetime(2027, 1, 1, tzinfo=UTC), datetime(2028, 2, 29, 12, 0, 0, 5_000, tzinfo=UTC)):
        clock.set(moment)
        assert clock.now() == moment


@pytest.mark.parametrize(
    "back",
    [lambda c: c.advance(-0.5), lambda c: c.advance(timedelta(-1)), lambda c: c.set(datetime(2026, 1, 1, tzinfo=UTC))],
)
def test_a_movable_clock_never_goes_back(back: Any) -> None:
    # Time that goes back is a bug of the test; the store would keep jobs that were due waiting.
    clock = MovableClock(datetime(2027, 1, 1, tzinfo=UTC))
    with pytest.raises(ValueError, match="forward"):
        back(clock)
    assert clock.now() == datetime(2027, 1, 1, tzinfo=UTC)


def test_a_movable_clock_starts_now_by_itself() -> None:
    # Starting at the epoch would make every `at=` of a test lie decades ahead.
    assert abs(MovableClock().now_ms() - wall_ms()) < 60_000
