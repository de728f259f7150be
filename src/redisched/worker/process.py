"""One worker: fetcher, runner and finisher on one event loop. Used by a worker process and in-process.

Ends in three ways: drained (what runs may finish within the grace time, the rest goes back), at
once (everything goes back), or stuck (a handler ignores its cancellation: the rest finishes, then the
process must go).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from contextlib import AsyncExitStack

from redisched.clock import mono_s
from redisched.errors import ConfigError
from redisched.registry import Registry
from redisched.settings import WorkerSettings
from redisched.store import Store
from redisched.worker.fetcher import Fetcher
from redisched.worker.finisher import Finisher
from redisched.worker.ledger import Ledger
from redisched.worker.runner import Runner

log = logging.getLogger("redisched.worker")

TICK_S = 0.05


class Worker:
    def __init__(self, store: Store, registry: Registry, settings: WorkerSettings, ledger: Ledger, name: str) -> None:
        self.name = name
        self.settings = settings
        self._registry = registry
        self.finisher = Finisher(store, ledger, name, settings.unknown_limit, self._freed)
        self.runner = Runner(store, registry, settings, ledger, name, self.finisher)
        self.fetcher = Fetcher(store, settings, self.runner, ledger, name)
        self._stack = AsyncExitStack()
        self._fetching: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._give_up_s = 0.0

    def _freed(self) -> None:
        self.fetcher.freed()
        self._changed.set()

    async def open(self) -> None:
        """Enters the application's lifespan. Its failure is the process' failure: nothing was claimed."""
        if self._registry.lifespan is not None:
            try:
                self.runner.resource = await self._stack.enter_async_context(self._registry.lifespan())
            except Exception as error:
                raise ConfigError(f"the lifespan of the application failed: {error!r}") from error
        self._watching = asyncio.create_task(self._watch())

    def start(self) -> None:
        self._fetching = asyncio.create_task(self.fetcher.run())

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self.runner.look()
            if self.runner.stuck:
                self._changed.set()

    @property
    def is_stuck(self) -> bool:
        return self.runner.stuck

    async def failed(self) -> None:
        """Returns when this worker cannot go on: it is stuck, or fetching ended in an error."""
        assert self._fetching is not None
        while not self.runner.stuck and not self._fetching.done():
            self._changed.clear()
            changed = asyncio.ensure_future(self._changed.wait())
            await asyncio.wait([changed, self._fetching], return_when=asyncio.FIRST_COMPLETED)
            changed.cancel()
        if self._fetching.done() and not self._fetching.cancelled() and (error := self._fetching.exception()):
            log.error("fetching failed", extra={"error": repr(error)}, exc_info=error)

    async def drain(self, grace_s: float) -> None:
        """Claims no more; lets what runs finish within `grace_s`; gives back the rest."""
        self.finisher.give_up()
        self.runner.draining = True
        await self.stop_fetching()
        self.runner.return_backlog()
        self._give_up_s = mono_s() + grace_s
        while self.runner.running and mono_s() < self._give_up_s:
            await asyncio.sleep(0.01)
        self.runner.cancel_all()
        give_up_s = mono_s() + self.settings.cancel_grace_s + 1.0
        while self.runner.running and mono_s() < give_up_s:
            await asyncio.sleep(0.01)
        await self.finisher.flush()

    def hurry(self) -> None:
        """Ends the grace time of a drain that is under way."""
        self._give_up_s = 0.0

    async def stop_fetching(self) -> None:
        """Ends fetching without losing a claim that is on its way."""
        if self._fetching is not None:
            # A claim whose reply is dropped would hold its jobs until their leases end: let it arrive.
            self.fetcher.stop()
            # Its error, if it ended in one, was told by failed(); the drain must go on.
            await asyncio.gather(self._fetching, return_exceptions=True)
            self._fetching = None

    async def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watching
        await self.finisher.flush()
        await self._stack.aclose()
