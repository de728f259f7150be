"""Runs claimed jobs: one handler to one outcome. Called by the fetcher, hands outcomes to the finisher.

A job is a task of its own. Timeouts are not a timer each: `look()` walks the running jobs some
times a second and cancels what is past its time or whose lease is lost. A handler that goes on
after its cancellation is given up on: its outcome is sent without it, and the process must be
replaced (`stuck`), because nothing else can stop such code.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import logging
import random
import traceback
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from redisched import codec
from redisched.backoff import Retry, RetryLater, RetryNever
from redisched.clock import delta_ms, from_ms, mono_s, wall_ms
from redisched.errors import LeaseLost
from redisched.keys import decode_tenant
from redisched.model import Claimed, Outcome
from redisched.registry import DEFAULT_KEEP_MS, Context, Handler, Registry
from redisched.settings import WorkerSettings
from redisched.store import Store
from redisched.worker.finisher import Finisher, Held
from redisched.worker.ledger import Ledger

log = logging.getLogger("redisched.worker")

STRAY_FIRST_MS, STRAY_LONGEST_MS = 100, 60_000
LONGEST_MS = 10 * 365 * 86_400_000  # ten years: what a handler may ask for with Retry.later
PROGRESS_KEPT_MS = 3_600_000
BACKLOG_S = 1.0  # what was fetched ahead and could not start for so long goes back
QUICK_S = 0.02  # a mean run time below this makes fetching ahead worth it


@dataclass(slots=True, eq=False)
class Running:
    """A handler that was started and has not come back."""

    held: Held
    handler: Handler[..., Any]
    keep_ms: int | None
    max_attempts: int
    started_s: float
    deadline_s: float = 0.0
    task: asyncio.Task[None] | None = None
    why_cancelled: str = ""  # timeout, lost or drain
    cancelled_s: float = 0.0
    given_up: bool = False


class Runner:
    def __init__(
        self,
        store: Store,
        registry: Registry,
        settings: WorkerSettings,
        ledger: Ledger,
        worker: str,
        finisher: Finisher,
    ) -> None:
        self._store = store
        self._handlers = registry.handlers
        self._settings = settings
        self._ledger = ledger
        self._worker = worker
        self._finisher = finisher
        self._threads: ThreadPoolExecutor | None = None
        self.running: dict[int, Running] = {}  # by slot
        self.backlog: deque[Held] = deque()
        self.resource: Any = None
        self.stuck = False
        self.draining = False  # nothing is started any more, also not what a claim on its way still brings
        self.started = 0
        # A job may be started from within another's task; each begins with the process' own context variables.
        self._context = contextvars.copy_context()
        self._mean_s = 1.0
        self.on_room: Callable[[], None] = lambda: None

    @property
    def in_hand(self) -> int:
        return len(self.running) + len(self.backlog)

    @property
    def is_quick(self) -> bool:
        """Handlers end so fast that the next batch should be here when this one ends."""
        return self._mean_s < QUICK_S

    def accept(self, claimed: list[Claimed]) -> None:
        """Takes claimed jobs into this process and starts as many as there is room for."""
        now_s = mono_s()
        for job in claimed:
            self.backlog.append(Held(job, self._ledger.take(job.shard, job.member, now_s), now_s))
        self.fill()

    def fill(self) -> None:
        while self.backlog and len(self.running) < self._settings.concurrency and not (self.stuck or self.draining):
            self._start(self.backlog.popleft())

    def return_backlog(self) -> None:
        """Gives back what was fetched ahead and not started: it uses up no attempt."""
        while self.backlog:
            self._finisher.release(self.backlog.popleft(), "unstarted")

    # -- starting

    def _start(self, held: Held) -> None:
        job = held.job
        try:
            head, packed = codec.split_record(job.record)
            held.tenant = head[1].partition(b":")[0].decode()
            held.attempt = int(head[2]) + 1
            body = codec.decode_body(packed)
            held.name = body.name
            handler = self._handlers.get(body.name)
            if handler is None:
                return self._return_stray(held, int(head[4]) if len(head) > 4 else 0)
            args, kwargs = handler.unpack(body.args)
        except Exception as error:
            # Not only what we raise: a user's type may do anything in its own constructor.
            return self._bury_undecodable(held, error)
        now_s = mono_s()
        held.started_ms = wall_ms()
        running = Running(held, handler, body.keep_ms, int(head[3]), now_s)
        timeout_ms = body.timeout_ms or handler.options.timeout_ms
        if timeout_ms:
            running.deadline_s = now_s + timeout_ms / 1000
        if handler.context_parameter is not None:
            kwargs[handler.context_parameter] = self._make_context(held, body)
        self._ledger.start(held.slot, running.deadline_s)
        self.running[held.slot] = running
        self.started += 1
        running.task = asyncio.create_task(self._run(running, args, kwargs), context=self._context.copy())
        return None

    def _make_context(self, held: Held, body: codec.Body) -> Context:
        async def tell(note: str) -> None:
            job = held.job
            if not await self._store.progress(
                job.shard, job.member, job.id, str(note)[:500].encode("utf-8", "backslashreplace"), PROGRESS_KEPT_MS
            ):
                raise LeaseLost(f"job {job.id} was given to somebody else; stop")

        when: datetime | None = from_ms(body.at_ms) if body.at_ms else None
        return Context(
            job_id=held.job.id,
            tenant=decode_tenant(held.tenant),
            attempt=held.attempt,
            scheduled_at=when,
            idempotency_key=body.key or held.job.id,
            fence=held.job.fence,
            resource=self.resource,
            tell=tell,
        )

    def _return_stray(self, held: Held, strays: int) -> None:
        # Spread, or the same host wakes for it every time: sleepers look in whole seconds too.
        delay_ms = round(min(STRAY_FIRST_MS * 1.5**strays, STRAY_LONGEST_MS) * random.uniform(0.75, 1.25))
        log.warning(
            "no such handler here, job goes back", extra=held.facts() | {"delay_ms": delay_ms, "times": strays + 1}
        )
        self._finisher.release(held, "unknown", delay_ms)

    def _bury_undecodable(self, held: Held, error: Exception) -> None:
        log.error("payload cannot be decoded, job buried", extra=held.facts() | {"error": str(error)})
        now_ms = wall_ms()
        reason = f"undecodable: {error}"
        run = codec.encode_run(held.attempt, self._worker, now_ms, now_ms, Outcome.FAILED, reason)
        self._finisher.bury(held, reason, run)

    # -- running

    async def _run(self, running: Running, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The handler, to its end, whatever that is: the outcome is always told."""
        handler = running.handler
        function = handler.function
        try:
            value = await (function(*args, **kwargs) if handler.is_async else self._in_thread(running, args, kwargs))
        except GeneratorExit:
            raise  # the loop is closing; the lease decides
        except asyncio.CancelledError as error:
            if running.why_cancelled:
                self._tell(running, lambda: self._cancelled(running))
            else:
                self._tell(running, lambda e=error: self._failed(running, Outcome.FAILED, "it cancelled itself", e))  # type: ignore[misc]
        except BaseException as error:
            # Also SystemExit and KeyboardInterrupt: a handler may not end the process for its neighbours.
            self._tell(running, lambda e=error: self._failed(running, Outcome.FAILED, _describe(e), e))  # type: ignore[misc]
        else:
            self._tell(running, lambda: self._done(running, value))
        self._ended(running)

    def _tell(self, running: Running, outcome: Callable[[], None]) -> None:
        try:
            outcome()
        except Exception:
            # An outcome that is never told would leave the job running for ever: its lease is renewed from the ledger.
            log.exception("outcome could not be told, the job counts as lost", extra=running.held.facts())
            self._finisher.release(running.held, "lost")

    async def _in_thread(self, running: Running, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._settings.concurrency, thread_name_prefix="redisched-job")
        call = functools.partial(contextvars.copy_context().run, running.handler.function, *args, **kwargs)
        future = asyncio.get_running_loop().run_in_executor(self._threads, call)
        try:
            value = await asyncio.shield(future)
            # A decorated coroutine function looks like a plain one; what it returns still has to be awaited.
            return await value if inspect.isawaitable(value) else value
        except asyncio.CancelledError:
            # A thread cannot be cancelled. Wait for it as for any handler that ignores its cancellation;
            # past the grace time `look()` gives up on it and the process is replaced.
            if not future.done():
                await asyncio.wait([future])
            if running.why_cancelled == "drain" and future.exception() is None:
                return future.result()  # it got to its end: running it again would be its second effect
            raise

    def _done(self, running: Running, value: Any) -> None:
        held = running.held
        if running.given_up or running.why_cancelled == "lost":
            return
        keep_ms = running.keep_ms if running.keep_ms is not None else (DEFAULT_KEEP_MS if value is not None else 0)
        is_occurrence = "@" in held.job.id
        if not keep_ms and not is_occurrence:
            self._finisher.complete(held)
            return
        held.ended_ms = wall_ms()
        result = run = b""
        if keep_ms:
            runs = codec.runs_of(held.job.record)
            result = codec.encode_result(held.attempt, self._worker, held.started_ms, held.ended_ms, value, runs)
        if is_occurrence:
            run = codec.encode_run(held.attempt, self._worker, held.started_ms, held.ended_ms, Outcome.DONE, "")
        self._finisher.complete(held, keep_ms, result, run, codec.result_size(value) if is_occurrence else 0)

    def _failed(self, running: Running, outcome: Outcome, text: str, error: BaseException) -> None:
        held, policy = running.held, running.handler.options.retry
        if running.given_up or running.why_cancelled == "lost":
            return
        held.ended_ms = wall_ms()
        if isinstance(error, RetryLater):
            outcome, text = Outcome.LATER, _text(error)
        run = codec.encode_run(held.attempt, self._worker, held.started_ms, held.ended_ms, outcome, text)
        short = f"{type(error).__name__}: {_text(error)}"
        used_up = held.attempt >= policy.max_attempts
        if isinstance(error, RetryLater) and not (error.counted and used_up):
            self._finisher.retry(held, error.counted, policy.max_attempts, min(delta_ms(error.delay), LONGEST_MS), run)
        elif used_up or isinstance(error, (RetryNever, *policy.fatal)):
            log.error("job failed for good", extra=held.facts() | {"error": short})
            self._finisher.bury(held, short, run)
        else:
            delay_ms = self._delay_ms(policy, held)
            log.warning("job failed, will be tried again", extra=held.facts() | {"error": short, "delay_ms": delay_ms})
            self._finisher.retry(held, True, policy.max_attempts, delay_ms, run)

    def _delay_ms(self, policy: Retry, held: Held) -> int:
        try:
            return policy.delay_ms(held.attempt)
        except Exception as error:  # a backoff function of the user's own
            log.error("backoff function failed, using 60 s", extra=held.facts() | {"error": repr(error)})
            return 60_000

    def _cancelled(self, running: Running) -> None:
        if running.why_cancelled == "timeout":
            limit_s = running.deadline_s - running.started_s
            self._failed(
                running,
                Outcome.TIMEOUT,
                f"timed out after {limit_s:g} s",
                TimeoutError(f"timed out after {limit_s:g} s"),
            )
        elif running.why_cancelled == "drain" and not running.given_up:
            self._finisher.release(running.held, "unstarted")

    def _ended(self, running: Running) -> None:
        if self.running.pop(running.held.slot, None) is None:
            return  # given up on before
        if running.why_cancelled == "lost":
            running.held.ended_ms = wall_ms()
            self._finisher.drop(running.held)
        self._mean_s += 0.05 * (mono_s() - running.started_s - self._mean_s)
        if self.backlog:
            self.fill()
        self.on_room()

    # -- watching

    def look(self) -> None:
        """Cancels what is past its time or whose lease is lost, and gives up on what ignores that."""
        now_s = mono_s()
        for running in list(self.running.values()):
            if not running.why_cancelled:
                if self._ledger.is_lost(running.held.slot):
                    self._cancel(running, "lost", now_s)
                elif running.deadline_s and now_s >= running.deadline_s:
                    self._cancel(running, "timeout", now_s)
            elif now_s - running.cancelled_s > self._settings.cancel_grace_s:
                self._give_up(running)
        if self.backlog and now_s - self.backlog[0].taken_s > BACKLOG_S:
            # Fetched ahead because handlers were quick, and now one is not: others could run this.
            self._mean_s = 1.0
            self.return_backlog()
        lost = [held for held in self.backlog if self._ledger.is_lost(held.slot)]
        for held in lost:
            self.backlog.remove(held)
            self._finisher.drop(held)

    def cancel_all(self) -> None:
        """The grace time of a drain is over: stop what runs; it goes back without using up an attempt."""
        for running in list(self.running.values()):
            if not running.why_cancelled:
                self._cancel(running, "drain", mono_s())

    def _cancel(self, running: Running, why: str, now_s: float) -> None:
        running.why_cancelled, running.cancelled_s = why, now_s
        assert running.task is not None
        running.task.cancel()

    def _give_up(self, running: Running) -> None:
        log.error("handler ignores its cancellation; replacing this process", extra=running.held.facts())
        if running.why_cancelled == "lost":
            self._finisher.drop(running.held)
        else:
            self._cancelled(running)
        running.given_up = True
        del self.running[running.held.slot]
        self.stuck = True
        self.on_room()


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # an exception of the user's own may fail to say what it is
        return "<no text>"


def _describe(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)).rstrip()
