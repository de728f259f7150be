"""Schedules in numbers: 200,000 due in one second, a million registered, and what one weighs.

storm   200,000 schedules of 100 tenants in 20 zones, 1,000 distinct expressions, all due at one instant: how fast
        one `redisched scheduler` makes their occurrences. An occurrence is ready in its lane or overflow.
lag     1,000 schedules that fire together in every second, alone and among a million: from the nominal time to the
        entry's id in the lane, which is the server's time at the beginning of the call that made it. All occurrences
        of a call share that time: `calls` says how many independent samples a percentile comes from.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from benchmarks.harness import Bench, Cpu, percentiles
from benchmarks.scenarios.cron_next import ZONES
from redisched import Cron, Scheduler, codec
from redisched.clock import from_ms, to_ms
from redisched.cron.zones import tzdata_version
from redisched.plan import PlanBody, encode_plan, plan_name
from redisched.plan.body import local_time, pack_rule

STORM, TENANTS, TARGET_PER_S = 200_000, 100, 30_000
FEW, MANY, SECONDS, TARGET_RATIO = 1_000, 1_000_000, 30, 2.0
BATCH, REGISTER_PER_S = 500, 10_000  # the slowest registration that is still in time for the storm
LONGEST_S = 120
_NO_QUOTA = 10**9
_NO_ARGS = codec.raw(codec.encode({"payload": ""}))


@dataclass(frozen=True, slots=True)
class Entry:
    """A rule as it is stored, and its next time."""

    rule: msgspec.Raw
    next_ms: int


class Late(NamedTuple):
    """How late one occurrence was, and the call that made it: shard and time."""

    seconds: float
    call: tuple[int, int]


def _shown(late: list[Late]) -> dict[str, float]:
    return percentiles([one.seconds for one in late]) | {"occurrences": len(late), "calls": len({x.call for x in late})}


async def run(bench: Bench) -> dict[str, Any]:
    storm = await _with(bench, "bench-storm", _storm)
    few = await _with(bench, "bench-few", _few)
    many = await _with(bench, "bench-many", _many)
    few_again = await _with(bench, "bench-again", _few)
    late = {
        f"{FEW}_registered": _shown([*few, *few_again]),
        f"{MANY}_registered": _shown(many["late"]),
        f"{MANY}_registered_while_swept": _shown(many["late_while_swept"]),
    }
    among_few, among_many = late[f"{FEW}_registered"], late[f"{MANY}_registered"]
    ratios = {at: round(among_many[at] / max(among_few[at], 1.0), 2) for at in ("p50_ms", "p99_ms")}
    return {
        "storm": storm,
        "registered_per_s": many["registered_per_s"],
        "bytes_a_schedule": many["bytes_a_schedule"],
        "due_each_second": FEW,
        "lateness": late,
        "lateness_ratio": ratios,
        "lag_cpu_us": many["cpu_us"],
        "targets": {"ready_per_s": TARGET_PER_S, "lateness_ratio": TARGET_RATIO},
        "ok": storm["ready_per_s"] >= TARGET_PER_S and max(ratios.values()) <= TARGET_RATIO,
    }


async def _with(bench: Bench, namespace: str, part: Callable[[Bench, Scheduler], Any]) -> Any:
    """One part, in a namespace of its own, of which nothing stays."""
    async with Scheduler(bench.url, namespace=namespace) as sched:
        try:
            return await part(bench, sched)
        finally:
            client = sched.store.client
            for pattern in (f"{{{namespace}:*", f"{namespace}:*"):
                for key in [key async for key in client.scan_iter(pattern, count=10_000)]:
                    await client.unlink(key)


# -- registering


async def _register(sched: Scheduler, count: int, entries: list[Entry], first: int, overlap: str = "skip") -> None:
    """Schedules number `first` and on, through the store's own script, all shards at once."""
    now_ms = await sched.store.clock_ms()
    tenants: list[list[int]] = [[] for _ in sched.store.keys.shards]
    for tenant in range(TENANTS):
        tenants[_shard(sched, tenant)].append(tenant)
    done, begin = 0, time.perf_counter()

    def rows(tenant: int) -> Iterator[list[Any]]:
        for n in range(first + tenant, first + count, TENANTS):
            entry, name = entries[n // TENANTS % len(entries)], f"report-{n}"
            body = PlanBody(
                name,
                _tenant(tenant),
                entry.rule,
                "noop",
                _NO_ARGS,
                overlap=overlap,
                created_ms=now_ms,
                changed_ms=now_ms,
            )
            yield [plan_name(body.tenant, name), 0, encode_plan(body), "-", entry.next_ms, entry.next_ms]

    async def fill(shard: int) -> None:
        nonlocal done
        caller = sched.store.caller()
        for tenant in tenants[shard]:
            todo = list(rows(tenant))
            for n in range(0, len(todo), BATCH):
                part = todo[n : n + BATCH]
                wanted = [word for row in part for word in row]
                answer = await sched.store.schedule(shard, caller, _NO_QUOTA, 0, wanted)
                assert all(version > 0 for version in answer), answer
                done += len(part)
                if done % 100_000 < BATCH and count > 100_000:
                    _say(f"{done:,} of {count:,} registered, {done / (time.perf_counter() - begin):,.0f}/s")

    await asyncio.gather(*(fill(shard) for shard in range(sched.store.shards)))


def _tenant(n: int) -> str:
    return f"tenant-{n:03}"


def _say(words: str) -> None:
    print(f"  {words}", file=sys.stderr, flush=True)


def _entry(expression: str, tz: str, after_ms: int, *, seconds: bool = False) -> Entry:
    rule = Cron(expression, tz, seconds=seconds)
    found = rule.next(from_ms(after_ms))
    assert found is not None
    return Entry(pack_rule(rule, from_ms(after_ms)), to_ms(found))


# -- the storm


async def _storm(bench: Bench, sched: Scheduler) -> dict[str, Any]:
    before = await _memory(sched)
    now_s = await sched.store.clock_ms() // 1000
    due_ms = -(-(now_s + STORM // REGISTER_PER_S) // 60) * 60_000
    entries = [_entry(text, tz, due_ms - 1) for tz in ZONES for text in _due_at(from_ms(due_ms), tz)]
    assert {entry.next_ms for entry in entries} == {due_ms}
    await _register(sched, STORM, entries, 0)
    weight = (await _memory(sched) - before) / STORM
    await _settle(sched)
    await _set_swept(sched, True)
    with bench.schedulers(sched.store.settings.namespace) as host:
        await _announced(sched)
        wait_s = due_ms / 1000 - time.time() - 0.2
        if wait_s < 0:
            raise SystemExit("cron_storm: the schedules were not registered in time; this machine is too slow or busy")
        _say(f"the storm begins in {wait_s:.0f} s")
        await asyncio.sleep(wait_s)
        cpu = Cpu(server=bench.server_pid, scheduler=host.pid)
        while await _total(sched, "fired") < STORM or await _overdue(sched):
            if time.time() > due_ms / 1000 + LONGEST_S:
                raise SystemExit(f"cron_storm: {await _total(sched, 'fired'):,} of {STORM:,} after {LONGEST_S} s")
            await asyncio.sleep(0.02)
        taken_s = time.time() - due_ms / 1000
        used = cpu.us_a_job(STORM)
    assert await _ready(sched) == STORM
    return {
        "schedules": STORM,
        "tenants": TENANTS,
        "zones": len(ZONES),
        "expressions": len({bytes(entry.rule) for entry in entries}),
        "ready_s": round(taken_s, 3),
        "ready_per_s": round(STORM / taken_s),
        "cpu_us": used,
        "caught_up": await _total(sched, "caught_up"),
        "bytes_a_schedule": round(weight, 1),
    }


def _due_at(instant: datetime, tz: str) -> list[str]:
    """50 expressions that fire at an instant, as the clocks of a zone show it."""
    at = local_time(Cron("* * * * *", tz), instant)  # not zoneinfo's: the machine may have another edition of the zones
    m, h, weekday = at.minute, at.hour, at.isoweekday() % 7
    found = [f"{m} * * * *", f"{m} {h} * * *", f"{m} {h} * * {weekday}", f"{m} {h} {at.day} * *"]
    found += [f"{m} {h} {at.day} {at.month} *"]
    found += [f"{m},{(m + more) % 60} * * * *" for more in range(15, 46)]
    found += [f"{m} {h},{(h + more) % 24} * * *" for more in range(1, 15)]
    return found


# -- the lag


async def _few(bench: Bench, sched: Scheduler) -> list[Late]:
    return (await _lateness(bench, sched))[0]


async def _many(bench: Bench, sched: Scheduler) -> dict[str, Any]:
    """The same 1,000 among a million, the rest of which are months away."""
    before, begin = await _memory(sched), time.perf_counter()
    now = from_ms(await sched.store.clock_ms())
    month = (now + timedelta(days=180)).month
    entries = [
        _entry(f"{n % 60} {n // 60 % 24} {n % 28 + 1} {month} *", ZONES[n % len(ZONES)], to_ms(now))
        for n in range(1_000)
    ]
    await _register(sched, MANY - FEW, entries, FEW)
    registered_s = time.perf_counter() - begin
    weight = (await _memory(sched) - before) / (MANY - FEW)
    await _settle(sched)
    late, cpu_us = await _lateness(bench, sched)
    _say("again, while all schedules are looked through for flaws")
    late_while_swept, swept_cpu_us = await _lateness(bench, sched, swept=False)
    return {
        "registered_per_s": round((MANY - FEW) / registered_s),
        "bytes_a_schedule": round(weight, 1),
        "late": late,
        "late_while_swept": late_while_swept,
        "cpu_us": {"quiet": cpu_us, "while_swept": swept_cpu_us},
    }


async def _lateness(bench: Bench, sched: Scheduler, *, swept: bool = True) -> tuple[list[Late], dict[str, float]]:
    """1,000 schedules for some seconds: how late each occurrence was, and the CPU time of one."""
    await _set_swept(sched, swept)
    with bench.schedulers(sched.store.settings.namespace) as host:
        await _announced(sched)
        begin_ms = (await sched.store.clock_ms() // 1000 + 2) * 1000
        entries = [_entry("* * * * * *", tz, begin_ms - 1, seconds=True) for tz in ZONES]
        await _register(sched, FEW, entries, 0, overlap="allow")
        begin_ms += 1_000
        end_ms = begin_ms + SECONDS * 1_000
        await asyncio.sleep(begin_ms / 1000 - time.time() - 0.1)
        cpu = Cpu(server=bench.server_pid, scheduler=host.pid)
        await asyncio.sleep(end_ms / 1000 - time.time() - 0.1)
        used = cpu.us_a_job(FEW * SECONDS)
        await asyncio.sleep(1.1)
    late: list[Late] = []
    caller = sched.store.caller()
    for n in range(FEW):
        plan = plan_name(_tenant(n % TENANTS), f"report-{n}")
        await sched.store.unschedule(_shard(sched, n % TENANTS), caller, plan)
    for tenant in range(TENANTS):
        lane = sched.store.keys.shards[_shard(sched, tenant)].lane(_tenant(tenant))
        for entry, fields in await sched.store.client.xrange(lane):
            nominal_ms = int(fields[b"i"].rpartition(b"@")[2])
            if begin_ms <= nominal_ms < end_ms:
                made_ms = int(entry.partition(b"-")[0])
                late.append(Late((made_ms - nominal_ms) / 1000, (_shard(sched, tenant), made_ms)))
    assert len(late) == FEW * SECONDS, f"{len(late):,} occurrences of {FEW * SECONDS:,}"
    return late, used


# -- the store


def _shard(sched: Scheduler, tenant: int) -> int:
    return sched.store.keys.shard_of(_tenant(tenant), "")


async def _set_swept(sched: Scheduler, swept: bool) -> None:
    """Whether a scheduler that starts now finds that somebody has looked through all schedules."""
    for shard, keys in enumerate(sched.store.keys.shards):
        await sched.store.client.delete(keys["swept"])
        if swept:
            await sched.store.begin_sweep(shard, tzdata_version(), 3_600)


async def _announced(sched: Scheduler) -> None:
    """A scheduler runs, and those that ran before it are forgotten."""
    await sched.store.client.delete(sched.store.keys.members)
    while not await sched.store.client.zcard(sched.store.keys.members):
        await asyncio.sleep(0.02)


async def _settle(sched: Scheduler) -> None:
    """Waits until the server's own work after so many writes is done."""
    while (await sched.store.client.info("persistence")).get("aof_rewrite_in_progress"):
        await asyncio.sleep(0.2)


async def _memory(sched: Scheduler) -> int:
    return int((await sched.store.client.info("memory"))["used_memory"])


async def _total(sched: Scheduler, what: str) -> int:
    totals = [await sched.store.client.hget(keys["totals"], what) for keys in sched.store.keys.shards]
    return sum(int(total or 0) for total in totals)


async def _overdue(sched: Scheduler) -> int:
    """Made, and not ready yet."""
    now_ms = await sched.store.clock_ms()
    return sum([await sched.store.client.zcount(k["due"], "-inf", now_ms) for k in sched.store.keys.shards])


async def _ready(sched: Scheduler) -> int:
    found = 0
    for tenant in range(TENANTS):
        keys = sched.store.keys.shards[_shard(sched, tenant)]
        found += await sched.store.client.xlen(keys.lane(_tenant(tenant)))
        found += await sched.store.client.zcard(keys.overflow(_tenant(tenant)))
    return found
