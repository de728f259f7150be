"""What the server is and what it can promise: version, persistence, eviction, replicas, clock. Read-only.

Asked once at the start of a worker or a scheduler (`check_server`) and by `redisched doctor`. Managed
servers forbid CONFIG, some users may not call INFO: what cannot be read is reported as unknown, in words.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any

from redisched.clock import mono_s, wall_ms
from redisched.errors import ConfigError, StoreError
from redisched.store.store import Store

CLOCK_LOOKS = 3
CONFIG_NAMES = (
    "appendonly",
    "appendfsync",
    "save",
    "maxmemory",
    "maxmemory-policy",
    "min-replicas-to-write",
)


@dataclass(frozen=True, slots=True)
class ServerReport:
    """What could be learnt of the server; of a cluster, the weakest of its primaries. None: unknown."""

    kind: str  # redis, valkey, in-memory
    version: str | None = None
    nodes: int = 1
    info_allowed: bool = True
    config_allowed: bool = True
    appendonly: bool | None = None
    fsync: str | None = None  # always, everysec, no
    snapshots: bool | None = None
    maxmemory: int | None = None
    eviction: str | None = None
    replicas: int | None = None
    min_replicas: int | None = None
    clock_ahead_ms: int = 0  # the server's clock before this machine's
    promise: str = ""

    @property
    def evicts(self) -> bool:
        """May it throw away jobs to make room?"""
        return bool(self.maxmemory) and self.eviction not in (None, "noeviction")


async def check_server(store: Store) -> ServerReport:
    """The report, for one log line at the start. Raises ConfigError when the server may evict jobs."""
    report = await examine_server(store)
    if report.evicts and not store.settings.allow_eviction:
        raise ConfigError(
            f"the server has a memory limit and the eviction policy {report.eviction!r}: it would throw away "
            f"jobs to make room. Run `CONFIG SET maxmemory-policy noeviction` (and in its configuration), "
            f"or accept the loss with Scheduler(allow_eviction=True)"
        )
    return report


async def examine_server(store: Store) -> ServerReport:
    """Everything that can be read, without judging it."""
    if store.is_memory:
        words = "in-memory: all jobs end with this process"
        return ServerReport("in-memory", info_allowed=False, config_allowed=False, promise=words)
    ahead_ms = await clock_ahead_ms(store)
    parts = [await _examine_node(store, node) for node in _nodes(store)]
    return _weakest(parts, ahead_ms)


async def clock_ahead_ms(store: Store) -> int:
    """The server's clock minus ours, from the quickest of a few round trips."""
    best_s, ahead = float("inf"), 0.0
    for _ in range(CLOCK_LOOKS):
        begun_s, here_ms = mono_s(), wall_ms()
        seconds, micros = await store.read(store.client.time)
        took_s = mono_s() - begun_s
        if took_s < best_s:
            best_s = took_s
            ahead = int(seconds) * 1000 + int(micros) / 1000 - (here_ms + took_s * 500)
    return round(ahead)


def _nodes(store: Store) -> list[Any]:
    return list(store.client.get_primaries()) if store.is_cluster else [None]


async def _examine_node(store: Store, node: Any) -> dict[str, Any]:
    options = {} if node is None else {"target_nodes": node}

    def ask(*words: str) -> Callable[[], Coroutine[Any, Any, Any]]:
        return lambda: store.client.execute_command(*words, **options)

    found: dict[str, Any] = {"info": {}, "config": {}}
    try:
        found["info"] = _flat(await store.read(ask("INFO")))
    except StoreError:
        pass  # an ACL without INFO: said as "unknown"
    try:
        for name in CONFIG_NAMES:
            found["config"] |= _pairs(await store.read(ask("CONFIG GET", name)))
    except StoreError:
        pass  # managed servers forbid CONFIG
    return found


def _flat(answer: Any) -> dict[str, str]:
    """INFO as redis-py parsed it, or one node's part of it."""
    if isinstance(answer, bytes | str):
        text = answer.decode() if isinstance(answer, bytes) else answer
        return dict(line.split(":", 1) for line in text.splitlines() if ":" in line and line[0] != "#")
    if len(answer) == 1 and isinstance(next(iter(answer.values())), dict):
        (answer,) = answer.values()
    return {str(key): str(value) for key, value in answer.items()}


def _pairs(answer: Any) -> dict[str, str]:
    if isinstance(answer, dict):
        if len(answer) == 1 and isinstance(next(iter(answer.values())), dict):
            (answer,) = answer.values()
        items = answer.items()
    else:
        items = zip(answer[::2], answer[1::2], strict=True)
    return {_word(key): _word(value) for key, value in items}


def _word(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _weakest(parts: list[dict[str, Any]], ahead_ms: int) -> ServerReport:
    def of(where: str, name: str) -> list[str]:
        return [part[where][name] for part in parts if name in part[where]]

    aof = [v == "yes" for v in of("config", "appendonly")] or [v == "1" for v in of("info", "aof_enabled")]
    fsync = sorted(of("config", "appendfsync"), key=["no", "everysec", "always"].index)
    saves = [bool(v) for v in of("config", "save")]
    limits = [int(v) for v in of("config", "maxmemory") or of("info", "maxmemory")]
    policies = of("config", "maxmemory-policy") or of("info", "maxmemory_policy")
    policies.sort(key="noeviction".__eq__)  # one that evicts is the weakest
    replicas = [int(v) for v in of("info", "connected_slaves")]
    least = [int(v) for v in of("config", "min-replicas-to-write")]
    valkey = of("info", "valkey_version")
    report = ServerReport(
        kind="valkey" if valkey else "redis",
        version=min(valkey or of("info", "redis_version"), default=None),
        nodes=len(parts),
        info_allowed=all(part["info"] for part in parts),
        config_allowed=all(part["config"] for part in parts),
        appendonly=all(aof) if aof else None,
        fsync=fsync[0] if fsync else None,
        snapshots=all(saves) if saves else None,
        maxmemory=max(limits, default=None),
        eviction=policies[0] if policies else None,
        replicas=min(replicas, default=None),
        min_replicas=min(least, default=None),
        clock_ahead_ms=ahead_ms,
    )
    return replace(report, promise=promise(report))


def promise(r: ServerReport) -> str:
    """What the server keeps when something breaks, in words."""
    if r.appendonly is None:
        disk = "what it writes to disk is unknown (INFO and CONFIG are forbidden here)"
    elif not r.appendonly:
        lost = "all jobs since its last snapshot" if r.snapshots else "every job"
        unless = "" if r.snapshots is not None else ", unless it writes snapshots (CONFIG is forbidden here)"
        disk = f"a crash or restart of the server loses {lost}{unless}: set appendonly yes"
    else:
        power = {
            "always": "a power loss loses nothing that was acknowledged",
            "everysec": "a power loss loses up to 1 s of work",
            "no": "a power loss loses what the system had not written yet, often 30 s of work",
            None: "what a power loss loses is unknown (CONFIG is forbidden here; 1 s of work with everysec)",
        }.get(r.fsync, "")
        # With everysec the server answers before it writes while an fsync is under way: seen with a slowed disk.
        crash = "loses nothing" if r.fsync == "always" else "loses nothing (up to 2 s of work when the disk is slow)"
        disk = f"a crash of the server process {crash}; {power}"
    if r.replicas is None:
        host = "whether it has replicas is unknown"
    elif r.replicas == 0:
        host = "loss of its disk loses everything, as no replica is connected"
    else:
        host = "loss of the host loses what no replica has: use durability='replicated'"
        if not r.min_replicas:
            host += ", and set min-replicas-to-write 1 so that a primary which was cut off takes no work"
    return f"{disk}; {host}"
