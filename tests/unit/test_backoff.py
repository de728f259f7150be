"""Retry: tries to make a delay negative, endless, early or larger than its cap, and to make a bad policy."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redisched.backoff import Retry, RetryLater, RetryNever
from redisched.errors import ConfigError

SHARES = st.floats(0, 1)


@pytest.mark.parametrize(
    ("policy", "delays_ms"),
    [
        (Retry(backoff="exponential", base=1, jitter=0), [1_000, 2_000, 4_000, 8_000]),
        (Retry(backoff="linear", base=1.5, jitter=0), [1_500, 3_000, 4_500, 6_000]),
        (Retry(backoff="constant", base=timedelta(minutes=1), jitter=0), [60_000] * 4),
        (Retry(backoff=lambda n: n * n, jitter=0), [1_000, 4_000, 9_000, 16_000]),
        (Retry(backoff=lambda n: timedelta(milliseconds=n), jitter=0), [1, 2, 3, 4]),
        (Retry(base=1, cap=3, jitter=0), [1_000, 2_000, 3_000, 3_000]),
        (Retry(base=1, cap=timedelta(seconds=3), jitter=0), [1_000, 2_000, 3_000, 3_000]),
    ],
)
def test_delays_follow_the_policy(policy: Retry, delays_ms: list[int]) -> None:
    # Off by one: the first failure must wait `base`, not twice as long.
    assert [policy.delay_ms(failed) for failed in (1, 2, 3, 4)] == delays_ms


@given(
    backoff=st.sampled_from(["exponential", "linear", "constant"]),
    failed=st.integers(1, 1_000),
    base=st.floats(0.001, 1e6),
    cap=st.floats(0.001, 1e7),
    jitter=SHARES,
    spread=SHARES,
)
def test_a_delay_stays_within_cap_and_jitter(
    backoff: Any, failed: int, base: float, cap: float, jitter: float, spread: float
) -> None:
    # The thousandth failure: 2**999 s is no float, and a retry must neither be early nor never.
    policy = Retry(max_attempts=1_000, backoff=backoff, base=base, cap=cap, jitter=jitter)
    assert 0 <= policy.delay_ms(failed, spread) <= cap * (1 + jitter) * 1000 + 1


@given(failed=st.integers(1, 100), jitter=SHARES)
def test_jitter_spreads_to_both_sides_and_the_same_number_gives_the_same_delay(failed: int, jitter: float) -> None:
    # A thousand jobs that failed together must not come back together, but a test must be able to foretell one.
    policy = Retry(jitter=jitter, cap=60)
    plain = Retry(jitter=0, cap=60).delay_ms(failed)
    low, middle, high = (policy.delay_ms(failed, spread) for spread in (0.0, 0.5, 1.0))
    assert middle == plain
    assert low == pytest.approx(plain * (1 - jitter), abs=1)
    assert high == pytest.approx(plain * (1 + jitter), abs=1)
    assert policy.delay_ms(failed, 0.25) == policy.delay_ms(failed, 0.25)


def test_without_a_given_number_delays_differ() -> None:
    # A spread that is drawn once, or not at all, would bring everybody back at one instant.
    assert len({Retry(jitter=0.5, base=1000, cap=1e6).delay_ms(1) for _ in range(50)}) > 10


@pytest.mark.parametrize("answer", [-5, timedelta(days=-1)])
def test_a_function_that_answers_a_time_in_the_past_means_now(answer: Any) -> None:
    # A negative delay would put a job before those that wait longer.
    assert Retry(backoff=lambda _: answer).delay_ms(1) == 0


def test_a_function_that_answers_for_ever_meets_the_cap() -> None:
    # inf is a float like others, but no time.
    assert Retry(backoff=lambda _: float("inf"), cap=10, jitter=0).delay_ms(1) == 10_000


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"max_attempts": 0}, "max_attempts"),
        ({"max_attempts": 1_001}, "max_attempts"),
        ({"backoff": "cubic"}, "cubic"),
        ({"base": 0}, "base"),
        ({"base": -1.0}, "base"),
        ({"cap": timedelta(0)}, "cap"),
        ({"jitter": 1.1}, "jitter"),
        ({"jitter": -0.1}, "jitter"),
        ({"fatal": (ValueError("x"),)}, "fatal"),
        ({"fatal": ("ValueError",)}, "fatal"),
        ({"fatal": ValueError}, "fatal=(ValueError,)"),
        ({"fatal": [ValueError]}, "fatal=(ValueError,)"),
    ],
)
def test_a_wrong_policy_says_what_is_wrong_with_an_example(wrong: dict[str, Any], named: str) -> None:
    # A wrong policy that is only found when the first job fails is found by a user at night.
    with pytest.raises(ConfigError) as caught:
        Retry(**wrong)
    assert named in str(caught.value)


@pytest.mark.parametrize("delay", [60, 60.0, timedelta(minutes=1)])
def test_later_carries_its_delay_reason_and_whether_it_counts(delay: Any) -> None:
    # Seconds and timedeltas must mean the same.
    asked = Retry.later(delay, "quota", counted=True)
    assert isinstance(asked, RetryLater)
    assert (asked.delay, asked.counted, str(asked)) == (timedelta(minutes=1), True, "quota")
    assert Retry.later(delay).counted is False
    assert "0:01:00" in str(Retry.later(delay))


def test_later_refuses_the_past() -> None:
    # A handler that computed a negative delay has a bug; running again at once would hide it in a loop.
    with pytest.raises(ConfigError, match="negative"):
        Retry.later(-1)


def test_never_carries_its_reason() -> None:
    # The reason is all that a human will see of it.
    asked = Retry.never("address is malformed")
    assert isinstance(asked, RetryNever)
    assert str(asked) == "address is malformed"
