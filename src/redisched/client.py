"""`Scheduler`: the object an application holds. Declares jobs and enqueues them.

One `Scheduler` serves a whole process; `async with sched` opens its connections. It runs no
handler itself, except in `run_until_idle()`, which is for tests and scripts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Protocol, Self, TypeVar, overload

from redisched import codec, ids
from redisched.backoff import DEFAULT_MAX_ATTEMPTS, Retry
from redisched.clock import LAST_MS, MovableClock, delta_ms, to_ms, wall_ms
from redisched.errors import ConfigError, InvalidCall, PayloadTooLarge, PayloadUndecodable, RedischedError
from redisched.handles import Job
from redisched.inspector import Inspector
from redisched.keys import DEFAULT_TENANT, PRIORITIES, check_namespace, encode_tenant, lane_of
from redisched.model import Durability, Priority, Stats
from redisched.outbox import Outbox, Parcel
from redisched.plans import PlanBook
from redisched.recurring import Recurring
from redisched.registry import Call, Context, Handler, JobOptions, Registry, options_of
from redisched.settings import ClientSettings, StoreSettings, WorkerSettings
from redisched.store import Store
from redisched.store.server import check_server
from redisched.worker.inline import run_until_idle

P = ParamSpec("P")
R = TypeVar("R")

MAX_KEY_CHARS = 512

log = logging.getLogger("redisched.client")


class _Decorator(Protocol):
    """What `@sched.job(...)` is: an async or a plain function becomes a Handler of what it returns."""

    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /) -> Handler[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R], /) -> Handler[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Handler[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Handler[P, R]: ...


class Scheduler(Recurring):
    """
    sched = Scheduler()                                  # $REDISCHED_URL; without it, the embedded server
    sched = Scheduler("redis://host:6379/0", namespace="rs", shards=16)
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        namespace: str = "rs",
        shards: int | None = None,
        timeout: float = 10.0,
        max_payload_bytes: int = 64 * 1024,
        replicas: int = 1,
        replica_timeout: float = 2.0,
        max_schedules: int = 100_000,
        history_runs: int = 100,
        history_days: int = 90,
        allow_eviction: bool = False,
        lifespan: Callable[[], AbstractAsyncContextManager[Any]] | None = None,
        clock: MovableClock | None = None,
    ) -> None:
        check_namespace(namespace)
        self.store_settings = StoreSettings(
            url,
            namespace,
            shards,
            timeout,
            allow_eviction=allow_eviction,
            history_runs=history_runs,
            history_days=history_days,
        )
        self.settings = ClientSettings(
            max_payload_bytes, replicas=replicas, replica_timeout_s=replica_timeout, max_schedules=max_schedules
        )
        self.registry = Registry(lifespan=lifespan)
        self._given_clock = clock
        self._store = Store(self.store_settings, clock)
        self._outbox: Outbox | None = None
        self._book: PlanBook | None = None
        self._declared = {}
        self._opened = 0
        self._turn = asyncio.Lock()

    # -- declaring

    @overload
    def job(self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /) -> Handler[P, R]: ...
    @overload
    def job(self, function: Callable[Concatenate[Context, P], R], /) -> Handler[P, R]: ...
    @overload
    def job(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Handler[P, R]: ...
    @overload
    def job(self, function: Callable[P, R], /) -> Handler[P, R]: ...
    @overload
    def job(
        self,
        /,
        *,
        name: str | None = None,
        retry: Retry | None = None,
        timeout: timedelta | float | None = None,
        keep_result: timedelta | bool | None = None,
    ) -> _Decorator: ...
    def job(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        retry: Retry | None = None,
        timeout: timedelta | float | None = None,
        keep_result: timedelta | bool | None = None,
    ) -> Any:
        """Declares a job: `@sched.job` or `@sched.job(name=..., retry=..., timeout=..., keep_result=...)`.

        A parameter annotated `Context` receives one wherever it stands; as the first parameter it is
        also left out of the call's type, so a type checker sees `send_email("a@b.c")` as it is written.

        keep_result  how long a result stays readable. By default ten minutes if it is not None;
                     True or a timedelta keeps None too, False keeps nothing.
        """
        options = options_of(retry, timeout, keep_result)

        def declare(fn: Callable[..., Any]) -> Handler[..., Any]:
            return self.registry.add(fn, name, options)

        return declare if function is None else declare(function)

    def lifespan(
        self, factory: Callable[[], AbstractAsyncContextManager[R]]
    ) -> Callable[[], AbstractAsyncContextManager[R]]:
        """Declares an async context manager around each worker process; `ctx.resource` is its value."""
        self.registry.lifespan = factory
        return factory

    def use(self, url: str | None) -> None:
        """Another address than the one it was made with; before it is opened. `memory://` for tests."""
        if self._opened:
            raise ConfigError("this scheduler is open; choose its address before `async with sched:`")
        self.store_settings = replace(self.store_settings, url=url)
        self._store = Store(self.store_settings, self._given_clock)

    # -- opening and closing

    async def __aenter__(self) -> Self:
        # Nested use is counted: a library and the application may both open the same scheduler.
        async with self._turn:
            if self._opened == 0:
                await self._open()
            self._opened += 1
        return self

    async def _open(self) -> None:
        try:
            await self._store.open()
            log.debug((await check_server(self._store)).promise)
        except BaseException:
            await self._store.close()
            raise
        self._outbox = Outbox(self._store, self.settings)
        self._book = PlanBook(self._store, self.settings)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        async with self._turn:
            self._opened -= 1
            if self._opened == 0 and self._outbox is not None:
                await self._outbox.close()
                self._outbox = self._book = None
                await self._store.close()
        if self._opened == 0:
            self._turn = asyncio.Lock()  # the next use may be on another event loop

    @property
    def store(self) -> Store:
        if self._outbox is None:
            raise ConfigError("this scheduler is not open: wrap its use in `async with sched:`")
        return self._store

    @property
    def book(self) -> PlanBook:
        """Schedules as the store has them."""
        assert self.store is not None
        assert self._book is not None
        return self._book

    @property
    def clock(self) -> MovableClock:
        """The movable clock of an in-memory scheduler."""
        if self.store.clock is None:
            raise ConfigError("only Scheduler('memory://') or Scheduler(clock=...) has a clock that can be moved")
        return self.store.clock

    @property
    def inspector(self) -> Inspector:
        """Read-only questions: stats, lists, doctor."""
        return Inspector(self.store)

    # -- enqueueing

    async def enqueue(
        self,
        call: Call[R],
        *,
        at: datetime | None = None,
        delay: timedelta | float | None = None,
        tenant: str = DEFAULT_TENANT,
        key: str | None = None,
        priority: Priority = "normal",
        durability: Durability = "async",
    ) -> Job[R]:
        """Stores a job, to run as soon as possible, `at` a time or after a `delay`.

        key         the same key, while its job lives, gives the same job back
        durability  "async": on the primary; "replicated": returns once replicas have it too
        """
        store = self.store
        assert self._outbox is not None
        parcel = self._parcel(call, _when(at, delay), at, tenant, key, priority)
        shard = store.keys.shard_of(tenant, parcel.id)
        created = await self._outbox.send(shard, parcel, replicated=_replicated(durability))
        return Job(store, parcel.id, tenant, call.name, call.handler, created)

    async def enqueue_many(
        self,
        calls: Iterable[Call[R]],
        *,
        at: datetime | None = None,
        delay: timedelta | float | None = None,
        tenant: str = DEFAULT_TENANT,
        priority: Priority = "normal",
        durability: Durability = "async",
    ) -> list[Job[R]]:
        """Stores many jobs, one round trip a shard (and 500 jobs). Answers in the order of the calls."""
        store = self.store
        assert self._outbox is not None
        replicated, when, outbox = _replicated(durability), _when(at, delay), self._outbox
        by_shard: dict[int, list[Parcel]] = {}
        jobs: list[Job[R]] = []
        for call in calls:
            parcel = self._parcel(call, when, at, tenant, None, priority)
            job = Job(store, parcel.id, tenant, call.name, call.handler)
            by_shard.setdefault(job.shard, []).append(parcel)
            jobs.append(job)
        # All arguments were checked before anything is sent: a bad call stores nothing.
        sends = (outbox.send_many(s, p, replicated=replicated) for s, p in by_shard.items())
        answers = await asyncio.gather(*sends)
        if errors := [error for _, error in answers if error is not None]:
            stored = {parcel.id for sent, _ in answers for parcel in sent}
            raise _partly(errors[0], [job for job in jobs if job.id in stored], len(jobs))
        return jobs

    def get_job(self, job_id: str, tenant: str = DEFAULT_TENANT) -> Job[Any]:
        """A handle for a job enqueued elsewhere."""
        return Job(self.store, job_id, tenant, "", None, created=False)

    def _parcel(
        self, call: Call[Any], when: str, at: datetime | None, tenant: str, key: str | None, priority: Priority
    ) -> Parcel:
        options = self._check_call(call)
        if priority not in PRIORITIES:
            raise InvalidCall(f"priority is one of {', '.join(PRIORITIES)}, not {priority!r}")
        lane = lane_of(tenant, priority)
        if key is None:
            job_id = ids.mint()
        else:
            if not isinstance(key, str) or not 0 < len(key) <= MAX_KEY_CHARS:
                raise InvalidCall(f"a key is 1 to {MAX_KEY_CHARS} characters, not {key!r:.80}")
            job_id = ids.from_key(encode_tenant(tenant), key)
        body = codec.Body(
            name=call.name,
            at_ms=to_ms(at) if at is not None else 0,
            args=codec.raw(call.packed),
            key=key,
            timeout_ms=options.timeout_ms if options else None,
            keep_ms=options.keep_ms if options else None,
        )
        max_attempts = options.retry.max_attempts if options else DEFAULT_MAX_ATTEMPTS
        return Parcel(job_id, lane, when, codec.encode_record(lane, max_attempts, body))

    def _check_call(self, call: Call[Any]) -> JobOptions | None:
        if not isinstance(call, Call):
            raise InvalidCall(f"a call is needed, such as send_email('a@b.c'), not {call!r:.80}")
        if len(call.packed) > self.settings.max_payload_bytes:
            raise PayloadTooLarge(call.name, len(call.packed), self.settings.max_payload_bytes)
        handler = call.handler or self.registry.handlers.get(call.name)
        if handler is not None and call.handler is None:
            # Made by name, but the code is here: check it as a call of the handler would be.
            try:
                handler.unpack(call.packed)
            except PayloadUndecodable as error:
                raise InvalidCall(f"{call!r}: {error}") from None
        return handler.options if handler else None

    # -- seeing and stepping

    async def stats(self) -> Stats:
        return await self.inspector.stats()

    async def run_until_idle(self, *, timeout: float = 60.0) -> int:
        """Runs everything that is due now, and what that makes due, in this process; answers how many runs ended.

        For tests: with `Scheduler("memory://")` move `sched.clock` on and call it again.
        """
        if self._declared:
            await self.put_schedules("inline")
        return await run_until_idle(self.store, self.registry, WorkerSettings(), timeout)


def _partly(error: RedischedError, stored: list[Job[Any]], wanted: int) -> RedischedError:
    """An enqueue_many that failed on the way: which jobs are stored all the same."""
    error.stored = stored
    error.add_note(f"{len(stored)} of {wanted} jobs are known to be stored; they are in the error's `stored`")
    return error


def _replicated(durability: Durability) -> bool:
    if durability not in ("async", "replicated"):
        raise InvalidCall(f"durability is 'async' or 'replicated', not {durability!r}")
    return durability == "replicated"


def _when(at: datetime | None, delay: timedelta | float | None) -> str:
    if at is not None and delay is not None:
        raise InvalidCall("give at= or delay=, not both")
    if at is not None:
        if not isinstance(at, datetime) or at.tzinfo is None or at.utcoffset() is None:
            raise InvalidCall(
                f"at= needs a datetime with a time zone, such as datetime(2027, 1, 1, tzinfo=UTC), not {at!r}"
            )
        return str(max(0, _checked(to_ms(at))))
    if delay is None:
        return "+0"
    try:
        ms = delta_ms(delay if isinstance(delay, timedelta) else timedelta(seconds=delay))
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidCall(f"delay= is a timedelta or seconds, not {delay!r}: {error}") from None
    if ms < 0:
        raise InvalidCall(f"delay= is not negative, as {delay!r} is; use at= for a time in the past")
    _checked(wall_ms() + ms)
    return f"+{ms}"


def _checked(at_ms: int) -> int:
    if at_ms > LAST_MS:
        raise InvalidCall("a job's time must be before the year 9999")
    return at_ms
