"""The frozen values that travel between the floors. Floor 3; no behaviour beyond checking themselves."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

from redisched.errors import ConfigError
from redisched.state import State

Priority = Literal["high", "normal", "low"]
Durability = Literal["async", "replicated"]
Backoff = Literal["exponential", "linear", "constant"] | Callable[[int], float | timedelta]


class Outcome(enum.StrEnum):
    """How a run ended."""

    DONE = "done"
    FAILED = "failed"
    TIMEOUT = "timeout"
    LOST = "lost"  # its worker died or stopped renewing
    STALE = "stale"  # it came back after its lease was gone; nothing it did counted
    LATER = "later"  # the handler asked for another time
    CANCELLED = "cancelled"  # somebody, or the next occurrence of its schedule, ended it
    SKIPPED = "skipped"  # an occurrence that was left out: the one before it still ran


@dataclass(frozen=True, slots=True)
class Run:
    """One attempt at a job."""

    attempt: int
    worker: str
    started_at: datetime | None  # None: lost before anybody could tell
    ended_at: datetime
    outcome: Outcome
    error: str = ""

    @property
    def duration(self) -> timedelta | None:
        return self.ended_at - self.started_at if self.started_at else None


@dataclass(frozen=True, slots=True)
class JobView:
    """What is known of a job at one instant: the answer of `Job.status()` and `redisched jobs show`."""

    id: str
    tenant: str
    state: State
    name: str = ""
    priority: Priority = "normal"
    scheduled_at: datetime | None = None
    run_at: datetime | None = None  # waiting: when it becomes due
    attempts: int = 0  # finished ones
    max_attempts: int = 0
    key: str | None = None
    lease_until: datetime | None = None
    fence: int | None = None
    worker: str | None = None
    progress: str | None = None
    position: int | None = None  # ready: its place in the lane, the next one is 1
    died_at: datetime | None = None
    outcome: str | None = None  # gone: done or cancelled, while it is remembered
    error: str | None = None
    args: Any = None
    runs: tuple[Run, ...] = ()
    payload_bytes: int = 0


@dataclass(frozen=True, slots=True)
class PlanRun:
    """One run in a schedule's history."""

    job_id: str
    nominal_at: datetime | None
    attempt: int
    worker: str
    started_at: datetime | None
    ended_at: datetime
    outcome: Outcome
    error: str = ""
    result_bytes: int = 0

    @property
    def duration(self) -> timedelta | None:
        return self.ended_at - self.started_at if self.started_at else None


@dataclass(frozen=True, slots=True)
class BackfillView:
    """How far the making of a schedule's past occurrences is."""

    made: int
    total: int
    next_at: datetime | None
    until: datetime


@dataclass(frozen=True, slots=True)
class PlanView:
    """What is known of a schedule at one instant: the answer of `Plan.view()` and `redisched schedules show`."""

    name: str
    tenant: str
    state: Literal["active", "paused", "ended", "broken"]
    version: int
    call: str
    rule: dict[str, Any]
    cursor: str = ""  # `plans(after=...)` goes on behind it
    words: str = ""  # the rule as a sentence
    waits_for: str = ""  # why it does not fire at its next time
    next_at: datetime | None = None  # nominal
    looks_at: datetime | None = None  # with jitter
    args: Any = None
    misfire: str = ""
    grace: timedelta = timedelta(0)
    overlap: str = ""
    jitter: timedelta = timedelta(0)
    idempotency_key: str | None = None
    priority: Priority = "normal"
    made: int = 0
    missed: int = 0
    skipped: int = 0
    living: tuple[str, ...] = ()  # ids of occurrences that may still live
    backfill: BackfillView | None = None
    origin: str = ""
    note: str = ""
    created_at: datetime | None = None
    changed_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A job that used up its attempts, or could not be run at all."""

    id: str
    tenant: str
    name: str
    died_at: datetime
    error: str
    attempts: int
    entry: str
    runs: tuple[Run, ...] = ()
    args: Any = None


@dataclass(frozen=True, slots=True)
class Claimed:
    """A job in a worker's hand: its record and the lease to it."""

    shard: int
    id: str
    member: str  # the lease's name in Redis: <id>#<fence>@<worker>
    fence: int
    record: bytes


@dataclass(frozen=True, slots=True)
class Recount:
    """What one shard keeps of a tenant, beside what is true. A count of -1: too many to count at once."""

    tenant: str  # encoded
    counted: tuple[int, int, int]  # waiting in `due`, running, dead
    tallied: tuple[int, int, int]
    marks_due: str  # the places that hold ready work: see lua/lib/ring.lua
    marks_set: str
    times_in_ring: int


@dataclass(frozen=True, slots=True)
class TenantStats:
    tenant: str
    waiting: int = 0
    ready: int = 0
    running: int = 0
    dead: int = 0
    lag_ms: int = 0  # of its oldest job that is due and not started
    done_per_s: float = 0.0  # over the last full minute and the running one


@dataclass(frozen=True, slots=True)
class Stats:
    at: datetime
    shards: int
    tenants: tuple[TenantStats, ...]
    totals: dict[str, int] = field(default_factory=dict)
    members: tuple[str, ...] = ()
    next_due: datetime | None = None
    schedules: int = 0
    schedules_enabled: int = 0
    next_schedule: datetime | None = None

    def total(self, what: str) -> int:
        return sum(getattr(t, what) for t in self.tenants)


def check_positive(name: str, value: float, example: str) -> None:
    if not value > 0:  # nan is not <= 0 either
        raise ConfigError(f"{name} must be more than 0, not {value!r} (for example {name}={example})")
