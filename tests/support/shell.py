"""`redisched` as a user calls it, in this process, for the suites of the command line."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from redisched import Retry, Scheduler
from redisched.cli import main
from redisched.ids import random_name


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Shell:
    """`redisched` in this process, on a namespace of its own."""

    def __init__(self, url: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.url = url
        self.namespace = f"c{random_name(8)}"
        self._capsys = capsys

    def __call__(self, *words: str) -> Answer:
        self._capsys.readouterr()
        try:
            code = main([*words, "--url", self.url, "--namespace", self.namespace])
        except SystemExit as end:  # argparse ends so
            code = int(end.code or 0)
        out, err = self._capsys.readouterr()
        assert "Traceback" not in err
        return Answer(code, out, err)

    def work(self) -> None:
        """Runs all that is due: `ok` returns, `bad` fails for good at once, `again` at its second attempt."""

        async def body() -> None:
            async with Scheduler(self.url, namespace=self.namespace) as sched:

                @sched.job
                async def ok(n: int = 0) -> int:
                    return n

                @sched.job(retry=Retry(max_attempts=1))
                async def bad(n: int = 0) -> None:
                    raise ValueError(f"bad {n}\x1b[2J")

                @sched.job(retry=Retry(max_attempts=2, base=timedelta(hours=1), jitter=0))
                async def again() -> None:
                    raise ValueError("not yet")

                await sched.run_until_idle()

        asyncio.run(body())

    def bury(self, count: int, *options: str) -> list[str]:
        ids = [self("enqueue", "bad", json.dumps([n]), *options).out.strip() for n in range(count)]
        self.work()
        return ids
