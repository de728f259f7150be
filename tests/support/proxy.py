"""A TCP proxy that can lose replies: the request reaches the server, the answer does not reach the client."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self


class CuttingProxy:
    """Passes bytes both ways. Once told to, it swallows the next reply to a script call and closes that connection."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._armed = False
        self._skip = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.cut = asyncio.Event()
        self.cuts = 0
        self.url = ""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"redis://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/0"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut_replies(self, after: int = 0) -> None:
        """Loses the reply to the next script call, and `after` more of its repetitions."""
        self.cut.clear()
        self._armed, self._skip = True, after

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", self._target)
        try:
            await self._pass(reader, writer, upstream_reader, upstream_writer)
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            for side in (writer, upstream_writer):
                side.close()

    async def _pass(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        upstream_reader: asyncio.StreamReader,
        upstream_writer: asyncio.StreamWriter,
    ) -> None:
        """One request and one reply at a time: redis-py sends no second request before the first is answered."""
        while request := await reader.read(1 << 20):
            upstream_writer.write(request)
            reply = await upstream_reader.read(1 << 20)
            is_script = b"EVALSHA" in request or b"EVAL" in request
            if self._armed and is_script and not reply.startswith(b"-NOSCRIPT"):
                self._armed = self._skip > 0
                self._skip -= 1
                self.cuts += 1
                self.cut.set()
                return
            writer.write(reply)
