"""`redisched worker` as a process of a test: started as a user starts it, and gone when the test ends."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import redis.asyncio as aioredis

from redisched.clock import mono_s

ROOT = Path(__file__).parents[2]


async def until(condition: Callable[[], Awaitable[bool] | bool], what: str, timeout_s: float = 20.0) -> None:
    """Waits for a condition; says what did not happen."""
    give_up = mono_s() + timeout_s
    while True:
        answer = condition()
        if answer if isinstance(answer, bool) else await answer:
            return
        if mono_s() > give_up:
            raise AssertionError(f"did not happen within {timeout_s:g} s: {what}")
        await asyncio.sleep(0.01)


class Host:
    """One supervisor and its children."""

    def __init__(
        self, url: str, namespace: str, log: Path, *options: str, app: str = "tests.support.app:sched"
    ) -> None:
        environment = {**os.environ, "REDISCHED_URL": url, "REDISCHED_TEST_NAMESPACE": namespace}
        self.log_path = log
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "redisched", "worker", app, *options],
                env=environment,
                cwd=ROOT,
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    @property
    def log(self) -> str:
        return self.log_path.read_text()

    def children(self) -> list[int]:
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in path.read_text().split()] if path.exists() else []

    def signal(self, signum: int) -> None:
        self.process.send_signal(signum)

    async def wait(self, timeout_s: float = 20.0) -> int:
        await until(lambda: self.process.poll() is not None, f"the host ends; its log:\n{self.log}", timeout_s)
        return int(self.process.returncode)

    def end(self) -> None:
        """Whatever state it is in: nothing of it is left."""
        children = self.children()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for pid in children:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


class Effects:
    """What the handlers of `app.py` wrote down."""

    def __init__(self, client: aioredis.Redis, namespace: str) -> None:
        self._client = client
        self.key = f"{namespace}-effects"

    async def lines(self, what: str = "") -> list[list[str]]:
        """[what, pid, job, attempt, fence] of each."""
        raw = await self._client.lrange(self.key, 0, -1)  # type: ignore[misc]
        found = [line.decode().split(" ") for line in raw]
        return [line for line in found if not what or line[0] == what]

    async def count(self, what: str) -> int:
        return len(await self.lines(what))

    async def lifespan(self) -> list[str]:
        raw = await self._client.lrange(f"{self.key}:lifespan", 0, -1)  # type: ignore[misc]
        return [line.decode() for line in raw]
