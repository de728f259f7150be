"""The soak: producers, two hosts and a scheduler on a server with append-only files, and faults drawn from a seed.

    python -m tests.chaos.soak --seconds 60 --seed 7 [--json FILE] [--fsync everysec] [--keep FOLDER]

Faults come for `--seconds`; then everything may drain, and the checker compares what was acknowledged with what was
done. Ends with 1 if it found anything. The seed fixes which faults come in which order; when they meet which job is up
to the machine, so a finding may need several runs of its seed.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import itertools
import json
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from redisched import RedischedError, Scheduler
from redisched.store import Store
from tests.chaos import app
from tests.chaos.checker import Ask, Checker, Report, read_runs
from tests.chaos.faults import Faults, Fleet, now_s
from tests.support.host import until
from tests.support.invariants import check_invariants
from tests.support.proxy import CuttingProxy
from tests.support.servers import ServerProcess, start_server

TENANTS = ("default", "acme", "a:b {c}/d", "Ünïcode ☃", "whale")
PRODUCERS = 4
PAUSE_S = 0.12  # between two bursts of one producer, on average
DRAIN_S = 60.0
LONG_S = 3.0  # longer than a lease


class Producers:
    """Enqueues through the public API, over the proxy, and remembers every call and its answer."""

    def __init__(self, url: str, seed: int) -> None:
        self._url = url
        self._seed = seed
        self._tokens: Iterator[int] = itertools.count(1)
        self._stopping = False
        self.asks: list[Ask] = []

    async def run(self) -> None:
        """Until stopped; answers to what is on its way are waited for."""
        async with (
            Scheduler(self._url, namespace=app.NAMESPACE) as one,
            Scheduler(self._url, namespace=app.NAMESPACE) as two,
        ):
            await asyncio.gather(*(self._produce((one, two)[n % 2], n) for n in range(PRODUCERS)))

    def stop(self) -> None:
        self._stopping = True

    async def _produce(self, sched: Scheduler, number: int) -> None:
        rng = random.Random(f"{self._seed} producer {number}")
        while not self._stopping:
            await asyncio.sleep(rng.expovariate(1 / PAUSE_S))
            if rng.random() < 0.1:
                await self._many(sched, rng)
            else:
                await asyncio.gather(*(self._one(sched, rng) for _ in range(rng.choice((1, 1, 1, 2, 3, 8)))))

    def _ask(self, kind: str) -> Ask:
        self.asks.append(Ask(next(self._tokens), kind, now_s()))
        return self.asks[-1]

    async def _one(self, sched: Scheduler, rng: random.Random) -> None:
        kind = rng.choice(("now", "now", "delayed", "keyed"))
        handler, options = rng.choice(app.HANDLERS), self._options(rng)
        if kind == "delayed" or rng.random() < 0.2:
            options["delay"] = rng.uniform(0.0, 3.0)
        if kind == "keyed":
            options["key"] = f"key-{rng.randrange(8)}"
        ask = self._ask(kind)
        try:
            job = await sched.enqueue(handler(ask.token, _seconds(rng)), **options)
        except RedischedError as error:
            ask.error = repr(error)
        else:
            ask.job_id, ask.created = job.id, job.created

    async def _many(self, sched: Scheduler, rng: random.Random) -> None:
        asks = [self._ask("many") for _ in range(rng.randrange(2, 20))]
        calls = [app.work(ask.token, _seconds(rng)) for ask in asks]
        try:
            jobs = await sched.enqueue_many(calls, **self._options(rng))
        except RedischedError as error:
            for ask in asks:
                ask.error = repr(error)
        else:
            for ask, job in zip(asks, jobs, strict=True):
                ask.job_id, ask.created = job.id, True

    @staticmethod
    def _options(rng: random.Random) -> dict[str, Any]:
        return {"tenant": rng.choice(TENANTS), "priority": rng.choice(("normal", "normal", "high", "low"))}


def _seconds(rng: random.Random) -> float:
    return LONG_S if rng.random() < 0.02 else rng.choice((0.0, rng.uniform(0.0, 0.1), rng.uniform(0.0, 1.0)))


async def soak(seconds: float, seed: int, folder: Path, fsync: str = "always") -> Report:
    """One whole run. Leaves its files in `folder`, and no process."""
    report = Report(seed, seconds)
    server = start_server("valkey", folder / "server", appendonly=True, config={"appendfsync": fsync})
    fleet = Fleet(server.url, folder)
    try:
        async with CuttingProxy(server.port) as proxy:
            fleet.start()
            producers = Producers(proxy.url, seed)
            producing = asyncio.create_task(producers.run())
            await until(lambda: _works(folder), "the first job runs", 30.0)
            faults = Faults(random.Random(f"{seed} faults"), fleet, server, proxy)
            await faults.run(seconds)
            producers.stop()
            await producing
            report.cut_replies = proxy.cuts
        dead = await _settle(server, fleet, report)
        report.faults = faults.counts
        (folder / "faults").write_text("".join(f"{fault}\n" for fault in faults.done))
        report.findings += fleet.findings
        Checker(producers.asks, read_runs(folder / "effects"), faults.done, dead).judge(report)
    finally:
        fleet.close()
        server.kill()
    return report


def _works(folder: Path) -> bool:
    effects = folder / "effects"
    return effects.exists() and effects.stat().st_size > 0


async def _settle(server: ServerProcess, fleet: Fleet, report: Report) -> set[str]:
    """Waits until nothing is left, ends all processes, checks the invariants; answers who is dead."""
    begin_s = now_s()
    async with Scheduler(server.url, namespace=app.NAMESPACE) as sched:
        try:
            await until(lambda: _drained(sched, fleet), "everything drains", DRAIN_S)
        except AssertionError as error:
            report.find("did not drain", [str(error), str(await sched.stats())])
        report.drain_s = round(now_s() - begin_s, 1)
        await fleet.end()
        report.totals = (await sched.stats()).totals
        report.find("invariants broken", await check_invariants(sched.store))
        return await _dead(sched.store)


async def _drained(sched: Scheduler, fleet: Fleet) -> bool:
    fleet.look()
    store = sched.store
    for keys in store.keys.shards:
        # Records of living jobs, wherever they are; the dead have one, too.
        if await store.client.hlen(keys["jobs"]) > await store.client.xlen(keys["dead"]):
            await asyncio.sleep(0.1)
            return False
    return True


async def _dead(store: Store) -> set[str]:
    entries = [entry for keys in store.keys.shards for entry in await store.client.xrange(keys["dead"])]
    return {fields[b"id"].decode() for _, fields in entries}


def text(report: Report) -> str:
    lines = [f"{name:12} {value}" for name, value in dataclasses.asdict(report).items() if name != "findings"]
    return "\n".join([*lines, "", *(report.findings or ["nothing found"])])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.soak", description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="how long faults come; default 60")
    parser.add_argument("--seed", type=int, help="which faults; default: drawn, and printed")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the report as JSON, too")
    parser.add_argument("--fsync", choices=("always", "everysec"), default="always", help="default: always")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="logs, effects and data stay here")
    args = parser.parse_args()
    seed = random.SystemRandom().randrange(1_000_000) if args.seed is None else args.seed
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="chaos-") as temporary:
        folder = args.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        report = asyncio.run(soak(args.seconds, seed, folder, args.fsync))
    print(text(report))
    if args.json:
        args.json.write_text(json.dumps(dataclasses.asdict(report), indent=2) + "\n")
    return 1 if report.findings else 0


if __name__ == "__main__":
    sys.exit(main())
