"""A TCP proxy that can lose replies: the request reaches the server, the answer does not reach the client."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self


class CuttingProxy:
    """Passes bytes both ways. Once told to, it swallows the next reply to a script call and closes that connection.

    A server that is gone is passed on, too: whoever is connected loses the connection, whoever comes is turned away.
    """

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
        upstream_writer: asyncio.StreamWriter | None = None
        try:
            upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", self._target)
            link = _Link(self)
            ways = [
                asyncio.create_task(link.requests(reader, upstream_writer)),
                asyncio.create_task(link.replies(upstream_reader, writer)),
            ]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            for side in (writer, upstream_writer):
                if side is not None:
                    side.close()

    def wants(self, reply: bytes) -> bool:
        """Whether this reply to a script call is to be lost. Counts it."""
        if not self._armed or reply.startswith(b"-NOSCRIPT"):
            return False
        self._armed = self._skip > 0
        self._skip -= 1
        self.cuts += 1
        self.cut.set()
        return True


class _Link:
    """One connection. A request may come in pieces, a reply too; both ways run by themselves until one ends."""

    def __init__(self, proxy: CuttingProxy) -> None:
        self._proxy = proxy
        self._is_script = False  # the request that waits for its reply; redis-py sends no second one before

    async def requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(1 << 20):
            if b"EVAL" in piece:  # or EVALSHA
                self._is_script = True
            elif piece.startswith(b"*"):
                self._is_script = False
            writer.write(piece)
            await writer.drain()

    async def replies(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(1 << 20):
            if self._is_script and self._proxy.wants(piece):
                return
            writer.write(piece)
            await writer.drain()
