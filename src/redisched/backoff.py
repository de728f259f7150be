"""When to try again. Floor 4; pure: the same attempt and the same random number give the same delay.

`Retry` is a job's policy. `Retry.later(...)` is what a handler raises to be run again at a time
of its own choosing; `Retry.never(...)` is what it raises when another attempt would be useless.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import timedelta

from redisched.errors import ConfigError
from redisched.model import Backoff, check_positive

DEFAULT_MAX_ATTEMPTS = 5


class RetryLater(Exception):
    """Raised by a handler: run me again after `delay`."""

    def __init__(self, delay: timedelta, reason: str, counted: bool) -> None:
        super().__init__(reason or f"to be run again in {delay}")
        self.delay = delay
        self.counted = counted


class RetryNever(Exception):
    """Raised by a handler: no attempt can succeed, bury me now."""


@dataclass(frozen=True, slots=True)
class Retry:
    """How often and when a failed job is tried again.

    max_attempts  all attempts together, the first one included; lost workers count as well
    backoff       "exponential" base*2^(n-1), "linear" base*n, "constant" base, or your own
                  function of the number of failed attempts (1, 2, ...) to seconds or a timedelta
    base, cap     seconds or timedeltas: the first delay and the largest, before jitter
    jitter        0.1 spreads a delay by up to 10 % in either direction, so that a thousand jobs
                  that failed together do not come back together
    fatal         exception types that are never tried again
    """

    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    backoff: Backoff = "exponential"
    base: float | timedelta = 1.0
    cap: float | timedelta = 3600.0
    jitter: float = 0.1
    fatal: tuple[type[BaseException], ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= self.max_attempts <= 1_000:
            raise ConfigError(
                f"max_attempts is 1 to 1000, not {self.max_attempts!r} (for example Retry(max_attempts=5))"
            )
        if not callable(self.backoff) and self.backoff not in ("exponential", "linear", "constant"):
            raise ConfigError(
                f"backoff is 'exponential', 'linear', 'constant' or a function of the attempt, not {self.backoff!r}"
            )
        check_positive("base", _seconds(self.base), "1.0")
        check_positive("cap", _seconds(self.cap), "3600")
        if not 0 <= self.jitter <= 1:
            raise ConfigError(f"jitter is a share between 0 and 1, not {self.jitter!r} (for example jitter=0.1)")
        types = self.fatal if isinstance(self.fatal, tuple) else (None,)  # fatal=ValueError is easily written
        if not all(isinstance(t, type) and issubclass(t, BaseException) for t in types):
            raise ConfigError(
                f"fatal is a tuple of exception types, not {self.fatal!r} (for example fatal=(ValueError,))"
            )

    def delay_ms(self, failed: int, spread: float | None = None) -> int:
        """The pause after the `failed`-th failure. `spread` in 0..1 stands for the random number."""
        cap_s = _seconds(self.cap)
        if callable(self.backoff):
            delay_s = _seconds(self.backoff(failed))
        elif self.backoff == "exponential":
            # 2**1000 is a fine int but no float: stop doubling long before
            delay_s = _seconds(self.base) * 2 ** min(failed - 1, 60)
        elif self.backoff == "linear":
            delay_s = _seconds(self.base) * failed
        else:
            delay_s = _seconds(self.base)
        spread = random.random() if spread is None else spread
        return max(0, round(min(delay_s, cap_s) * (1 + self.jitter * (2 * spread - 1)) * 1000))

    @staticmethod
    def later(delay: timedelta | float, reason: str = "", *, counted: bool = False) -> RetryLater:
        """`raise Retry.later(60)`: run this job again in a minute. Uses up no attempt unless `counted`."""
        after = delay if isinstance(delay, timedelta) else timedelta(seconds=delay)
        if after < timedelta(0):
            raise ConfigError(f"Retry.later takes a delay that is not negative, not {delay!r}")
        return RetryLater(after, reason, counted)

    @staticmethod
    def never(reason: str) -> RetryNever:
        """`raise Retry.never("address is malformed")`: to the dead letters, whatever attempts are left."""
        return RetryNever(reason)


def _seconds(value: float | timedelta) -> float:
    return value.total_seconds() if isinstance(value, timedelta) else float(value)
