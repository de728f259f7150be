"""The link to the server: opening, agreeing on a layout, and asking until there is an answer.

The base of `Store`, which adds a method a script. `read()` rides through a lost connection, a failover,
a server that loads its data or lacks replicas, until `timeout_s` has passed; that is safe because
everything that goes through it may be sent twice.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from redis import exceptions as rex

from redisched.clock import MovableClock, mono_s
from redisched.embedded import EmbeddedServer
from redisched.errors import ConfigError, LayoutMismatch, RedischedError, StoreError, StoreFull, StoreUnavailable
from redisched.keys import LAYOUT_VERSION, Keys, meta_key
from redisched.settings import DEFAULT_SHARDS, StoreSettings
from redisched.store.caller import Caller
from redisched.store.connect import Client, connect, connect_memory, hide_password, is_cluster
from redisched.store.scripts import load_scripts

log = logging.getLogger("redisched.store")
T = TypeVar("T")

MAX_CALLS = 32  # at once, and so connections

# What passes by itself: a lost connection, a failover, a server that is still loading its data.
PASSING = (
    rex.ConnectionError,
    rex.TimeoutError,
    rex.BusyLoadingError,
    rex.ReadOnlyError,
    rex.ClusterDownError,
    rex.TryAgainError,
    rex.MasterDownError,
    asyncio.TimeoutError,
    OSError,
)


# Refusals that pass: too few replicas are connected just now, or the disk is full.
PASSING_REFUSALS = ("NOREPLICAS", "MISCONF", "LOADING", "CLUSTERDOWN")


class Link:
    def __init__(self, settings: StoreSettings, clock: MovableClock | None = None) -> None:
        self.settings = settings
        self.clock = clock
        self.scripts = load_scripts()
        self.is_memory = (settings.address or "").startswith("memory://")
        self.is_cluster = False
        self.url = ""
        self._client: Client = None
        self._embedded: EmbeddedServer | None = None
        self._keys: Keys | None = None
        self._away_since: float | None = None

    # -- opening and closing

    async def open(self) -> None:
        address = self.settings.address
        if address is None:
            self._embedded = EmbeddedServer()
            # starting waits for a server to load its data; do not hold up the loop meanwhile
            address = await asyncio.to_thread(self._embedded.start)
        if self.is_memory and self.clock is None:
            self.clock = MovableClock()
        # A call holds a connection. Without a bound, a thousand waiters would open a thousand of them at once.
        self._gate = asyncio.Semaphore(MAX_CALLS)
        try:
            self.url = address
            self._client = connect_memory() if self.is_memory else connect(address)
            self.is_cluster = is_cluster(self._client)
            self._keys = Keys(self.settings.namespace, await self._agree_on_layout())
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None
        if self._embedded is not None:
            await asyncio.to_thread(self._embedded.stop)
            self._embedded = None

    @property
    def is_open(self) -> bool:
        return self._client is not None

    @property
    def keys(self) -> Keys:
        assert self._keys is not None, "the store is not open"
        return self._keys

    @property
    def shards(self) -> int:
        return len(self.keys.shards)

    @property
    def client(self) -> Client:
        """The connection itself, for readers."""
        if self._client is None:
            raise ConfigError("this scheduler is closed: use its jobs inside `async with sched:`")
        return self._client

    @property
    def embedded_pid(self) -> int | None:
        return self._embedded.pid if self._embedded else None

    def now_ms(self) -> int:
        """What scripts get as `now_ms`: 0, so that Redis' clock decides, or the test's clock."""
        return self.clock.now_ms() if self.clock is not None else 0

    def caller(self) -> Caller:
        return Caller(self.shards)

    async def _agree_on_layout(self) -> int:
        """The shard count of the namespace. The first to come decides it, for ever (until a reshard)."""
        meta = meta_key(self.settings.namespace)
        wanted = self.settings.shards or DEFAULT_SHARDS

        async def agree() -> dict[bytes, bytes]:
            await self._client.hsetnx(meta, "layout", LAYOUT_VERSION)
            await self._client.hsetnx(meta, "shards", wanted)
            found: dict[bytes, bytes] = await self._client.hgetall(meta)
            return found

        found = await self.read(agree)
        layout, shards = int(found[b"layout"]), int(found[b"shards"])
        place = f"namespace {self.settings.namespace!r} at {hide_password(self.url)}"
        if layout != LAYOUT_VERSION:
            raise LayoutMismatch(
                f"{place} has layout {layout}, this version of redisched writes {LAYOUT_VERSION}: "
                f"use the version that made it, or another namespace"
            )
        if self.settings.shards not in (None, shards):
            raise LayoutMismatch(
                f"{place} was created with {shards} shards, not {self.settings.shards}: "
                f"leave shards= out, or use another namespace"
            )
        return shards

    # -- calling

    async def read(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Runs a question (or a call that may be repeated) until it is answered or `timeout_s` has passed."""
        give_up = mono_s() + self.settings.timeout_s
        pause_s = 0.01
        while True:
            try:
                answer = await self._ask(ask, give_up)
                self.note_back()
                return answer
            except PASSING as error:
                if isinstance(error, rex.AuthenticationError | rex.NoPermissionError):
                    raise StoreError(f"{hide_password(self.url)} refused this user: {error}") from error
                if mono_s() + pause_s > give_up:
                    raise StoreUnavailable(
                        f"{hide_password(self.url)} did not answer for {self.settings.timeout_s:g} s: {error}"
                    ) from error
                self.note_away(error)
                await self._revive()
            except rex.ResponseError as error:
                if isinstance(error, rex.OutOfMemoryError) or str(error).startswith("OOM"):
                    raise StoreFull(
                        "the server reached its memory limit and took nothing; "
                        "let workers drain it, raise maxmemory, or enqueue less"
                    ) from error
                raise StoreError(str(error)) from error
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(pause_s * 2, 0.5)

    async def _ask(self, ask: Callable[[], Awaitable[T]], give_up: float) -> T:
        task = asyncio.current_task()
        cancels = task.cancelling() if task else 0
        # The wait for a connection counts too: on a hung server every place may be taken.
        async with asyncio.timeout(max(0.05, give_up - mono_s())), self._gate:
            try:
                answer = await ask()
            except rex.ResponseError as error:
                if str(error).startswith(PASSING_REFUSALS):
                    raise rex.TryAgainError(str(error)) from error
                raise
        # On Python 3.11 the wait_for() inside redis-py loses a cancellation that comes as a send completes.
        if task and task.cancelling() > cancels:
            raise asyncio.CancelledError
        return answer

    async def _revive(self) -> None:
        """An embedded server that died is started again by whoever misses it."""
        if self._embedded is not None and self._embedded.pid is None:
            try:
                await asyncio.to_thread(self._embedded.start)
            except RedischedError as error:
                log.error("the embedded server does not start again", extra={"error": str(error)})

    def note_away(self, error: BaseException) -> None:
        """One line when an outage begins and one when it ends, however many calls wait meanwhile."""
        if self._away_since is None:
            self._away_since = mono_s()
            log.warning("store unavailable, trying again", extra={"error": repr(error)})

    def note_back(self) -> None:
        if self._away_since is not None:
            log.warning("store is back", extra={"after_s": round(mono_s() - self._away_since, 3)})
            self._away_since = None
