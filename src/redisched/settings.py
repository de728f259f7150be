"""One small frozen settings value for each actor, which checks itself when it is made. Floor 3."""

from __future__ import annotations

import os
from dataclasses import dataclass

from redisched.errors import ConfigError
from redisched.model import check_positive

DEFAULT_SHARDS = 4
MAX_SHARDS = 1024


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """How the store is reached and laid out."""

    url: str | None = None  # None: $REDISCHED_URL, without it the embedded server
    namespace: str = "rs"
    shards: int | None = None  # None: what the namespace was created with, for a new one DEFAULT_SHARDS
    timeout_s: float = 10.0  # how long a call rides through a lost connection before StoreUnavailable
    lane_bound: int = 2_000  # ready jobs of one lane; what is due past it waits in the overflow
    allow_eviction: bool = False  # work on a server that may evict jobs
    history_runs: int = 100  # runs kept of each schedule
    history_days: int = 90  # and for how long

    def __post_init__(self) -> None:
        if self.shards is not None and not 1 <= self.shards <= MAX_SHARDS:
            raise ConfigError(f"shards is 1 to {MAX_SHARDS}, not {self.shards!r} (for example shards=16)")
        check_positive("timeout", self.timeout_s, "10")
        check_positive("lane_bound", self.lane_bound, "2000")
        check_positive("history_runs", self.history_runs, "100")
        check_positive("history_days", self.history_days, "90")

    @property
    def address(self) -> str | None:
        return self.url or os.environ.get("REDISCHED_URL") or None


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """What the enqueueing side allows."""

    max_payload_bytes: int = 64 * 1024
    batch: int = 500  # jobs in one script call; 500 take about a millisecond of the server
    replicas: int = 1  # how many must confirm a `durability="replicated"` enqueue
    replica_timeout_s: float = 2.0
    max_schedules: int = 100_000  # of one tenant

    def __post_init__(self) -> None:
        check_positive("max_payload_bytes", self.max_payload_bytes, "65536")
        check_positive("replicas", self.replicas, "1")


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """One worker process."""

    concurrency: int = 200
    lease_s: float = 10.0
    grace_s: float = 20.0  # SIGTERM: how long running jobs may finish
    cancel_grace_s: float = 5.0  # how long a cancelled handler may clean up before its process is replaced
    unknown_limit: int = 100  # how often a job whose handler nobody knows goes back before it is buried
    batch: int = 256  # jobs in one claim

    def __post_init__(self) -> None:
        if not 1 <= self.concurrency <= 10_000:
            raise ConfigError(f"concurrency is 1 to 10000, not {self.concurrency!r} (for example --concurrency 200)")
        if self.lease_s < 1:
            raise ConfigError(f"a lease is at least 1 s, not {self.lease_s!r} (for example lease_s=10)")
        if self.grace_s < 0 or self.cancel_grace_s < 0:
            raise ConfigError("grace times are not negative (for example grace_s=20)")
        check_positive("unknown_limit", self.unknown_limit, "100")

    @property
    def lease_ms(self) -> int:
        return round(self.lease_s * 1000)


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    """The roles that need no application code: promotion, schedules, recovery, pruning."""

    batch: int = 500
    look_s: float = 1.0  # a sleeping role looks at least this often, whatever the wake-ups say
    recover_s: float = 1.0
    amnesty_s: float = 3.0  # after an outage of the store: time for living workers to renew; more than lease / 4
    dead_kept: int = 10_000  # dead letters kept a shard
    dead_days: int = 90
    catch_up_factor: int = 2  # after an outage: so many times as fast as the tenant's schedules usually are
    catch_up_per_hour: int = 3_600  # and at least so fast: a small tenant need not wait for hours
    sweep_s: float = 600.0  # how often broken schedules are looked for

    def __post_init__(self) -> None:
        if not 1 <= self.batch <= 1_000:
            raise ConfigError(f"batch is 1 to 1000, not {self.batch!r} (for example batch=500)")
        check_positive("look_s", self.look_s, "1")
        check_positive("recover_s", self.recover_s, "1")
        check_positive("catch_up_factor", self.catch_up_factor, "2")
        check_positive("catch_up_per_hour", self.catch_up_per_hour, "3600")
        check_positive("sweep_s", self.sweep_s, "600")
        if self.dead_kept < 0 or self.dead_days < 0:
            raise ConfigError("dead_kept and dead_days are not negative (for example dead_days=90)")
