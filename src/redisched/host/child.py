"""A worker process: `python -m redisched.host.child ORDERS`, started by the supervisor and by nobody else.

Talks to its supervisor over one socket, a word a line (see `orders.py`). The end of the socket is
the supervisor's death: nobody renews the leases any more, so the process gives back what it holds
and goes. Signals of the terminal are the supervisor's business and ignored here; a SIGTERM sent to
this very process drains it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys

import uvloop

from redisched import logs
from redisched.errors import RedischedError
from redisched.host.application import load_application
from redisched.host.orders import DRAIN, FAILED_EXIT, QUIT, READY, STUCK_EXIT, Orders, unpack
from redisched.worker.ledger import Ledger, slots_for
from redisched.worker.process import Worker

log = logging.getLogger("redisched.worker")


class Child:
    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._grace_s: float | None = None  # None: go on working
        self._told = asyncio.Event()

    async def run(self) -> int:
        orders = self._orders
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._end, orders.settings.grace_s)
        reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=orders.control_fd))
        listening = asyncio.create_task(self._listen(reader))
        sched = load_application(orders.app)
        if orders.url:
            sched.use(orders.url)
        # Handlers enqueue through the application's own scheduler: it is open while they run.
        async with sched:
            ledger = Ledger(slots_for(orders.settings.concurrency, orders.settings.batch), orders.ledger_fd)
            worker = Worker(sched.store, sched.registry, orders.settings, ledger, orders.name)
            await worker.open()
            worker.start()
            writer.write(READY)
            failed = asyncio.create_task(worker.failed())
            told = asyncio.create_task(self._told.wait())
            await asyncio.wait([failed, told], return_when=asyncio.FIRST_COMPLETED)
            grace_s = self._grace_s if self._grace_s is not None else orders.settings.grace_s
            await self._drain(worker, grace_s)
            for task in (failed, told, listening):
                task.cancel()
            if worker.is_stuck:
                # Threads and tasks that cannot be stopped would hold up any orderly end.
                _leave(STUCK_EXIT)
            await worker.close()
        return 0 if self._grace_s is not None else 1

    async def _drain(self, worker: Worker, grace_s: float) -> None:
        """Drains, unless a `quit` comes in the middle."""
        draining = asyncio.create_task(worker.drain(grace_s))
        while not draining.done():
            self._told.clear()
            told = asyncio.create_task(self._told.wait())
            await asyncio.wait([draining, told], return_when=asyncio.FIRST_COMPLETED)
            told.cancel()
            if self._grace_s == 0 and grace_s > 0 and not draining.done():
                worker.hurry()
        await draining

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        while word := await reader.readline():
            if word == DRAIN:
                self._end(self._orders.settings.grace_s)
            elif word == QUIT:
                self._end(0)
        log.error("supervisor is gone, giving everything back", extra={"worker": self._orders.name})
        self._end(0)

    def _end(self, grace_s: float) -> None:
        self._grace_s = grace_s if self._grace_s is None else min(grace_s, self._grace_s)
        self._told.set()


def _leave(code: int) -> None:
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main() -> None:
    orders = unpack(sys.argv[1])
    # Ctrl-C reaches the whole process group; the supervisor decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logs.setup(orders.log_level, orders.log_style)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            code = runner.run(Child(orders).run())
    except RedischedError as error:
        log.error("worker cannot start", extra={"worker": orders.name, "error": str(error)})
        code = FAILED_EXIT
    except Exception:
        log.exception("worker cannot start", extra={"worker": orders.name, "app": orders.app})
        code = FAILED_EXIT
    _leave(code)


if __name__ == "__main__":
    main()
