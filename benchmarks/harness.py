"""What scenarios share: a server, worker processes, CPU time of each, and the machine's own speed."""

from __future__ import annotations

import asyncio
import mmap
import os
import platform
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

from redisched import Scheduler
from redisched.embedded import EmbeddedServer

_TICKS = os.sysconf("SC_CLK_TCK")


class Bench:
    """One run: a server that is ours alone, unless an address was given."""

    def __init__(self, server: str) -> None:
        self.kind = server
        self.folder = Path(tempfile.mkdtemp(prefix="redisched-bench-"))
        self.namespace = "bench"
        self._embedded: EmbeddedServer | None = None
        self._redis: subprocess.Popen[bytes] | None = None
        self.url = ""
        self.server_pid: int | None = None

    def __enter__(self) -> Self:
        if self.kind == "embedded":
            self._embedded = EmbeddedServer(self.folder / "data")
            self.url = self._embedded.start()
            self.server_pid = self._embedded.pid
        elif self.kind == "redis":
            self._start_redis()
        else:
            self.url = self.kind
        os.environ["REDISCHED_URL"] = self.url
        return self

    def __exit__(self, *_: object) -> None:
        if self._embedded is not None:
            self._embedded.stop(wait_s=10)
        if self._redis is not None:
            self._redis.terminate()
            self._redis.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start_redis(self) -> None:
        binary = shutil.which("redis-server")
        if binary is None:
            raise SystemExit("benchmarks: there is no redis-server here; use --server embedded or an address")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        options = [
            "--port",
            str(port),
            "--bind",
            "127.0.0.1",
            "--dir",
            str(self.folder),
            "--appendonly",
            "yes",
            "--save",
            "",
        ]
        self._redis = subprocess.Popen([binary, *options], stdout=subprocess.DEVNULL)
        self.url, self.server_pid = f"redis://127.0.0.1:{port}/0", self._redis.pid
        for _ in range(500):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.01)

    def scheduler(self) -> Scheduler:
        """The application's scheduler, at this run's server."""
        from benchmarks.app import sched

        sched.use(self.url)
        return sched

    @contextmanager
    def workers(self, *options: str, file: Path | None = None) -> Iterator[Host]:
        """`redisched worker` as a user starts it."""
        environment = {**os.environ, "REDISCHED_URL": self.url}
        if file is not None:
            environment["REDISCHED_BENCH_FILE"] = str(file)
        command = ["worker", "benchmarks.app:sched", "--log-level", "ERROR", *options]
        with self._process(command, environment) as host:
            yield host

    @contextmanager
    def schedulers(self, namespace: str) -> Iterator[Host]:
        """`redisched scheduler`: one process, without workers."""
        command = ["scheduler", "--url", self.url, "--namespace", namespace, "--log-level", "ERROR"]
        with self._process(command, {**os.environ}) as host:
            yield host

    @contextmanager
    def _process(self, command: list[str], environment: dict[str, str]) -> Iterator[Host]:
        words = [sys.executable, "-m", "redisched", *command]
        host = Host(subprocess.Popen(words, env=environment, cwd=Path(__file__).parent.parent))
        try:
            yield host
        finally:
            host.end()

    def stamps(self, count: int) -> Stamps:
        return Stamps(self.folder / f"stamps-{time.time_ns()}", count)


class Host:
    """A running `redisched worker`: its supervisor and children, by pid."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    @property
    def pid(self) -> int:
        return self.process.pid

    def children(self) -> list[int]:
        path = Path(f"/proc/{self.pid}/task/{self.pid}/children")
        return [int(pid) for pid in path.read_text().split()] if path.exists() else []

    async def ready(self, sched: Scheduler, count: int = 1) -> None:
        """Waits until its children run and it has announced itself."""
        while len(self.children()) < count or not (await sched.stats()).members:
            await asyncio.sleep(0.02)
        probe = await sched.enqueue(_noop()(""))
        await probe.result(timeout=30)

    def end(self, signum: int = signal.SIGTERM) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signum)
        self.process.wait()


def _noop() -> Any:
    from benchmarks.app import noop

    return noop


class Stamps:
    """Starts of jobs, as the handlers of `app.py` note them."""

    def __init__(self, path: Path, count: int) -> None:
        self.path = path
        path.write_bytes(bytes(16 * count))
        with open(path, "r+b") as opened:
            self._map = mmap.mmap(opened.fileno(), 0)
        self.count = count

    def get(self, index: int) -> tuple[int, float]:
        """How often job `index` started, and when last."""
        starts, at = struct.unpack_from("<qd", self._map, index * 16)
        return int(starts), float(at)

    def started(self) -> int:
        return sum(1 for index in range(self.count) if self.get(index)[0])


class Cpu:
    """CPU seconds of processes, between two looks."""

    def __init__(self, **pids: int | None) -> None:
        self._pids = {name: pid for name, pid in pids.items() if pid is not None}
        self._before = {name: cpu_s(pid) for name, pid in self._pids.items()}

    def us_a_job(self, jobs: int) -> dict[str, float]:
        return {name: round((cpu_s(pid) - self._before[name]) * 1e6 / jobs, 2) for name, pid in self._pids.items()}


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def percentiles(values_s: list[float]) -> dict[str, float]:
    """p50, p99, p99.9 and the largest, in ms."""
    ordered = sorted(values_s)

    def at(share: float) -> float:
        return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1000, 3)

    return {"p50_ms": at(0.5), "p99_ms": at(0.99), "p999_ms": at(0.999), "max_ms": at(1.0)}


def _commit() -> str:
    asked = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return asked.stdout.strip()


async def environment(sched: Scheduler) -> dict[str, Any]:
    """The machine, the versions and how fast both are right now."""
    info = await sched.store.client.info("server")
    python_s = time.process_time()
    sum(i * i for i in range(2_000_000))
    python_s = time.process_time() - python_s
    lua_s = time.perf_counter()
    await sched.store.client.eval("local s = 0 for i = 1, 5000000 do s = s + i % 7 end return s", 0)
    return {
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "server": f"{info.get('server_name', 'redis')} {info.get('valkey_version') or info['redis_version']}",
        "redis-py": version("redis"),
        "redisched": version("redisched"),
        "commit": _commit(),
        "calibration": {
            "python_2M_squares_s": round(python_s, 3),
            "lua_5M_additions_s": round(time.perf_counter() - lua_s, 3),
        },
    }
