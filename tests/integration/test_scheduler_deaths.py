"""Schedules that fire every second while schedulers are killed, stopped and replaced: each time once, none missing.

For some seconds in the suite; the long run, with a seed of its own:

    REDISCHED_DEATHS_S=30 REDISCHED_DEATHS_SEED=1 pytest -s tests/integration/test_scheduler_deaths.py
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from redisched import Cron, Every, Misfire, Overlap, Scheduler
from redisched.keys import DEFAULT_TENANT
from redisched.plan import Standing, job_prefix, plan_name
from redisched.store import Store
from tests.support.host import ROOT, until
from tests.support.invariants import check_invariants, namespace_keys
from tests.support.servers import BOUND, ServerProcess, available_kinds, start_server

SECONDS = float(os.environ.get("REDISCHED_DEATHS_S", "8"))
SEED = int(os.environ.get("REDISCHED_DEATHS_SEED", "7"))
NAMESPACE = "deaths"
PROCESSES = 4
STOPPED_S = (0.2, 2.5)  # well below the tolerance of 10 s, past which a catch-up is paced
# The largest has more ready jobs than a lane takes, also in the short run: the overflow is a part of this.
TENANTS = {DEFAULT_TENANT: 80, "large": 300, "acme": 60, "zürich/ost": 40, "x" * 100: 20}

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform != "linux", reason="its processes die with the test by prctl"),
]


@pytest.fixture(params=available_kinds())
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServerProcess]:
    started = start_server(request.param, tmp_path / "server")
    yield started
    started.stop()


class Fleet:
    """`redisched scheduler`, some times, and what happens to them."""

    def __init__(self, url: str, log: Path, seed: int) -> None:
        self._url = url
        self._log = log
        self._rng = random.Random(seed)
        self._running: list[subprocess.Popen[bytes]] = []
        self._stopped: list[tuple[float, subprocess.Popen[bytes]]] = []
        self.faults: Counter[str] = Counter()

    def start(self) -> None:
        command = [sys.executable, "-m", "redisched", "scheduler", "--url", self._url, "--namespace", NAMESPACE]
        with self._log.open("ab") as out:
            self._running.append(
                subprocess.Popen(
                    [sys.executable, "-I", "-S", "-c", BOUND, str(os.getpid()), *command],
                    cwd=ROOT,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                )
            )

    async def torment(self, seconds: float) -> None:
        """Kills and stops until the time is over; all that live then go on."""
        end_s = time.time() + seconds
        while time.time() < end_s:
            await asyncio.sleep(self._pause_s())
            self._wake(time.time())
            self._fault()
        self._wake(float("inf"))

    def _pause_s(self) -> float:
        """Until the next fault: at any time, or as a second begins, when the schedules are fired."""
        if self._rng.random() < 0.4:
            return self._rng.uniform(0.05, 0.8)
        return -time.time() % 1 + self._rng.uniform(0.0, 0.12)

    def _fault(self) -> None:
        if not self._running:
            return  # all are stopped: nobody fires for a while
        victim = self._running.pop(self._rng.randrange(len(self._running)))
        assert victim.poll() is None, f"a scheduler ended by itself:\n{self.log}"
        if self._rng.random() < 0.5:
            victim.kill()
            victim.wait()
            self.faults["killed"] += 1
            self.start()
        else:
            victim.send_signal(signal.SIGSTOP)
            self._stopped.append((time.time() + self._rng.uniform(*STOPPED_S), victim))
            self.faults["stopped"] += 1
            self.faults["all stopped"] += not self._running

    def _wake(self, now_s: float) -> None:
        for until_s, process in [*self._stopped]:
            if until_s <= now_s:
                process.send_signal(signal.SIGCONT)
                self._stopped.remove((until_s, process))
                self._running.append(process)

    @property
    def log(self) -> str:
        return self._log.read_text()

    def end(self) -> None:
        for process in (*self._running, *(process for _, process in self._stopped)):
            process.kill()
            process.wait()
        self._running, self._stopped = [], []


@pytest.fixture
def fleet(server: ServerProcess, tmp_path: Path) -> Iterator[Fleet]:
    made = Fleet(server.url, tmp_path / "schedulers.log", SEED)
    yield made
    made.end()


async def test_every_second_of_every_schedule_once_whoever_dies(server: ServerProcess, fleet: Fleet) -> None:
    # a step made twice by two schedulers, or lost between the look and the step of one that died
    print(f"seed {SEED}, {SECONDS:g} s")
    async with Scheduler(server.url, namespace=NAMESPACE) as sched:
        first = await register(sched)
        for _ in range(PROCESSES):
            fleet.start()
        await fleet.torment(SECONDS)
        end_ms = await sched.store.clock_ms()
        await until(lambda: all_past(sched.store, end_ms), "all schedules pass the end of the faults", 30)
        log = fleet.log
        fleet.end()
        last = await cursors(sched.store)
        made = await everything_made(sched.store)
        await judge(sched.store, first, last, made)
        print(f"{sum(made.values()):,} occurrences, {dict(fleet.faults)}")
        assert await check_invariants(sched.store) == []
        assert fleet.faults["killed"] >= 2
        assert fleet.faults["stopped"] >= 2
        assert "Traceback" not in log
        await remove(sched.store)


async def register(sched: Scheduler) -> dict[str, int]:
    """Makes the schedules; answers the first nominal time of each, by what its ids begin with."""

    @sched.job
    async def tick() -> None: ...

    for tenant, count in TENANTS.items():
        for n in range(count):
            rule = Cron("* * * * * *", tz="Asia/Kolkata", seconds=True) if n % 2 else Every(timedelta(seconds=1))
            policies: Any = {"misfire": Misfire.run_all(max=10_000), "overlap": Overlap.ALLOW}
            await sched.schedule(f"s{n}", tick(), rule, tenant=tenant, **policies)
    return await cursors(sched.store)


async def cursors(store: Store) -> dict[str, int]:
    found: dict[str, int] = {}
    for tenant, count in TENANTS.items():
        for n in range(count):
            key = store.keys.shards[store.keys.shard_of(tenant, f"s{n}")]["planned"]
            raw = await store.client.hget(key, plan_name(tenant, f"s{n}"))
            found[job_prefix(tenant, f"s{n}")] = Standing.parse(raw).cursor_ms
    return found


async def all_past(store: Store, end_ms: int) -> bool:
    for keys in store.keys.shards:
        if any(Standing.parse(raw).cursor_ms <= end_ms for raw in await store.client.hvals(keys["planned"])):
            return False
    return True


async def everything_made(store: Store) -> Counter[str]:
    """Ids, as often as a place holds them; plain keys are read, so no script can hide its own fault."""
    client, found = store.client, Counter[str]()
    for keys in store.keys.shards:
        found.update(_ids(await client.zrange(keys["due"], 0, -1)))
    for key in await namespace_keys(store):
        name = key.partition("}:")[2]
        if name.startswith("overflow:"):
            found.update(_ids(await client.zrange(key, 0, -1)))
        elif name.startswith("lane:"):
            entries = await client.xrange(key)
            found.update(fields[b"i"].decode() for _, fields in entries)
            # One that was added twice and removed once would be seen here.
            assert (await client.xinfo_stream(key))["entries-added"] == len(entries), name
    return found


def _ids(members: list[bytes]) -> list[str]:
    return [member.decode().partition("/")[2] for member in members]


async def judge(store: Store, first: dict[str, int], last: dict[str, int], made: Counter[str]) -> None:
    wanted = {f"{prefix}{ms}" for prefix, begin in first.items() for ms in range(begin, last[prefix], 1_000)}
    assert len(wanted) >= (SECONDS - 1) * sum(TENANTS.values())
    assert [id_ for id_ in wanted if id_ not in made] == []
    assert [id_ for id_, times in made.items() if times > 1 or id_ not in wanted] == []
    records, totals, kept = set(), Counter[str](), 0
    for keys in store.keys.shards:
        records |= {id_.decode() for id_ in await store.client.hkeys(keys["jobs"])}
        totals.update({k.decode(): int(v) for k, v in (await store.client.hgetall(keys["totals"])).items()})
        kept += sum(Standing.parse(raw).made for raw in await store.client.hvals(keys["planned"]))
    assert records == wanted
    # One that was made twice and fell together with its first would count here.
    assert totals["fired"] == kept == len(wanted)
    assert totals["missed"] == totals["overlapped"] == 0
    assert store.shards > 1
    assert any("overflow:large" in key for key in await namespace_keys(store))


async def remove(store: Store) -> None:
    await store.client.unlink(*await namespace_keys(store))
