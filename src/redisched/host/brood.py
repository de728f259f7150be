"""One child as its supervisor sees it: the process, the socket to it, and the ledger of what it holds.

Knows how to start, tell and end a process; decides nothing. `supervisor.py` does.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys

from redisched.clock import mono_s
from redisched.host.orders import READY, Orders, pack
from redisched.settings import WorkerSettings
from redisched.worker.ledger import STARTED, Ledger, shared_file, size_for, slots_for


class ChildProcess:
    def __init__(self, name: str, settings: WorkerSettings) -> None:
        self.name = name
        self.settings = settings
        self.started_s = mono_s()
        self.ready = asyncio.Event()
        slots = slots_for(settings.concurrency, settings.batch)
        self._ledger_fd = shared_file(size_for(slots))
        self.ledger = Ledger(slots, self._ledger_fd)
        self._process: asyncio.subprocess.Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._listening: asyncio.Task[None] | None = None

    async def start(self, app: str, url: str | None, log_level: str, log_style: str) -> None:
        ours, theirs = socket.socketpair()
        orders = Orders(
            app,
            url,
            self.name,
            theirs.fileno(),
            self._ledger_fd,
            self.settings,
            log_level=log_level,
            log_style=log_style,
        )
        with theirs:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "redisched.host.child",
                pack(orders),
                pass_fds=(theirs.fileno(), self._ledger_fd),
                stdin=asyncio.subprocess.DEVNULL,
            )
        reader, self._writer = await asyncio.open_connection(sock=ours)
        self._listening = asyncio.create_task(self._listen(reader))

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        try:
            while word := await reader.readline():
                if word == READY:
                    self.ready.set()
        except ConnectionError:
            pass  # the process died; wait() tells

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def wait(self) -> int:
        assert self._process is not None
        return await self._process.wait()

    def tell(self, word: bytes) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(word)

    def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            os.kill(self._process.pid, signal.SIGKILL)

    def is_overdue(self, now_s: float) -> bool:
        """A job is past its timeout and all grace: the process itself cannot see to it any more."""
        limit_s = self.settings.cancel_grace_s + 2.0
        return any(e.state == STARTED and e.deadline and now_s > e.deadline + limit_s for e in self.ledger.entries())

    def close(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
        if self._writer is not None:
            self._writer.close()
        self.ledger.close()
        os.close(self._ledger_fd)
