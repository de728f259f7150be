"""`redisched worker`: starts N worker processes, keeps their leases alive, replaces the ones that die.

Runs no handler, so nothing a handler does can hold it up: it renews leases from the children's
ledgers, gives back the jobs of a child that died at once, kills one whose job is past its timeout
and unreachable, and runs the scheduler's roles beside that. SIGTERM or Ctrl-C drains; a second
signal gives everything back and leaves.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from dataclasses import dataclass, field

from redisched.client import Scheduler
from redisched.clock import mono_s
from redisched.errors import ConfigError, StoreError, StoreUnavailable
from redisched.host.brood import ChildProcess
from redisched.host.orders import DRAIN, FAILED_EXIT, QUIT, STUCK_EXIT
from redisched.ids import random_name
from redisched.scheduler import Roles
from redisched.settings import SchedulerSettings, WorkerSettings
from redisched.store import Store
from redisched.store.server import check_server
from redisched.worker.ledger import STARTED
from redisched.worker.renewer import Renewer

log = logging.getLogger("redisched.supervisor")

BACKOFF_FIRST_S, BACKOFF_LONGEST_S = 0.05, 10.0
SETTLED_S = 10.0  # a child that lived so long starts its successor without delay
BURST_LOOK_S = 0.1
QUIT_S = 1.0  # the second signal: what cannot be given back by its process by then is given back for it
END_S = 5.0


@dataclass(frozen=True, slots=True)
class HostSettings:
    """What the command line of `redisched worker` says."""

    app: str
    url: str | None = None
    processes: int = 1
    burst: bool = False
    scheduler: bool = True
    worker: WorkerSettings = field(default_factory=WorkerSettings)
    log_level: str = "INFO"
    log_style: str = "text"


class Supervisor:
    def __init__(self, sched: Scheduler, settings: HostSettings) -> None:
        self._sched = sched
        self._settings = settings
        self._children: dict[int, ChildProcess] = {}
        self._ending = asyncio.Event()
        self._signals = 0
        self._failure = 0
        self._was_ready = False
        self.name = f"{socket.gethostname()}:{os.getpid()}:{random_name(4)}"

    async def run(self) -> int:
        """Until told to end; answers the exit code."""
        settings = self._settings
        loop = asyncio.get_running_loop()
        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signum, self._signalled)
        async with self._sched as sched:
            store = sched.store
            if store.is_memory:
                raise ConfigError("memory:// lives in one process: use `await sched.run_until_idle()`, or a server")
            log.info((await check_server(store)).promise)
            await self._put_schedules(sched)
            renewer = Renewer(store, settings.worker.lease_ms, lambda: [c.ledger for c in self._children.values()])
            background = [asyncio.create_task(renewer.run()), asyncio.create_task(self._watch())]
            background.append(asyncio.create_task(store.keep_announcing(self.name)))
            if settings.scheduler:
                background.append(asyncio.create_task(Roles(store, SchedulerSettings()).run()))
            if settings.burst:
                background.append(asyncio.create_task(self._end_when_empty(store)))
            for task in background:
                task.add_done_callback(self._background_ended)
            keepers = [asyncio.create_task(self._keep(store, slot)) for slot in range(settings.processes)]
            try:
                await asyncio.gather(*keepers)
            finally:
                for task in (*background, *keepers):
                    task.cancel()
                # Bounded: an end must come, whatever a task makes of its cancellation.
                await asyncio.wait([*background, *keepers], timeout=END_S)
                await store.leave(self.name)
        return self._failure

    async def _put_schedules(self, sched: Scheduler) -> None:
        """The schedules that the code declares; what is refused is logged there."""
        placed = await sched.put_schedules(self._settings.app)
        if placed.changed:
            log.info("schedules put in place", extra={"schedules": ", ".join(placed.changed)})

    def _signalled(self) -> None:
        self._signals += 1
        if self._signals == 1:
            log.info("draining; once more to leave at once", extra={"grace_s": self._settings.worker.grace_s})
        self._end(DRAIN if self._signals == 1 else QUIT)

    def _end(self, word: bytes) -> None:
        """Tells the children; one that cannot hear, because a handler blocks it, is killed when its time is over."""
        self._ending.set()
        worker = self._settings.worker
        patience_s = worker.grace_s + worker.cancel_grace_s + 2.0 if word == DRAIN else QUIT_S
        for child in self._children.values():
            child.tell(word)
            asyncio.get_running_loop().call_later(patience_s, child.kill)

    def _background_ended(self, task: asyncio.Task[None]) -> None:
        """Renewal or promotion that ends by itself is a bug; a host that goes on without it would look healthy."""
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a part of the supervisor failed, ending this host", exc_info=error)
            self._failure = 1
            self._end(DRAIN)

    # -- children

    async def _keep(self, store: Store, slot: int) -> None:
        """Keeps one process running in this slot until the end."""
        pause_s = BACKOFF_FIRST_S
        while not self._ending.is_set():
            child = ChildProcess(f"{random_name(8)}", self._settings.worker)
            s = self._settings
            await child.start(s.app, s.url, s.log_level, s.log_style)
            self._children[slot] = child
            log.info("worker started", extra={"worker": child.name, "pid": child.pid})
            if self._ending.is_set():
                child.tell(DRAIN)
            code = await child.wait()
            self._was_ready = self._was_ready or child.ready.is_set()
            lived_s = mono_s() - child.started_s
            given_back = await self._give_back(store, child)
            del self._children[slot]
            child.close()
            if self._ending.is_set():
                return
            if code == FAILED_EXIT and not self._was_ready:
                # Nothing will get better by itself: the application does not load. Say so and stop. Once one
                # has been ready, a failing start is an outage (of the store, of a resource) and passes.
                self._failure = 1
                self._end(DRAIN)
                return
            pause_s = BACKOFF_FIRST_S if lived_s > SETTLED_S else min(pause_s * 2, BACKOFF_LONGEST_S)
            log.error(
                "worker died, starting another" if code != STUCK_EXIT else "worker was stuck, starting another",
                extra={"worker": child.name, "exit": code, "given_back": given_back, "pause_s": pause_s},
            )
            try:
                async with asyncio.timeout(pause_s):
                    await self._ending.wait()
            except TimeoutError:
                pass

    async def _give_back(self, store: Store, child: ChildProcess) -> int:
        """What a dead child held goes back now; only a lost host has to wait for leases to end."""
        by_shard: dict[int, list[object]] = {}
        for entry in child.ledger.entries():
            # An end that was asked for is not the job's fault and uses up no attempt.
            why = "lost" if entry.state == STARTED and not self._ending.is_set() else "unstarted"
            by_shard.setdefault(entry.shard, []).extend((entry.member, entry.job_id, why, 0))
        caller, total = store.caller(), 0
        for shard, held in by_shard.items():
            for start in range(0, len(held), 4 * 500):
                part = held[start : start + 4 * 500]
                try:
                    stale = await store.release(shard, caller, self._settings.worker.unknown_limit, part)
                    total += len(part) // 4 - len(stale)
                except (StoreUnavailable, StoreError) as error:
                    log.error("jobs of a dead worker come back when their leases end", extra={"error": str(error)})
        return total

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(0.5)
            now_s = mono_s()
            for child in list(self._children.values()):
                if child.is_overdue(now_s):
                    log.error(
                        "a job is past its timeout and cannot be reached, killing its process",
                        extra={"worker": child.name},
                    )
                    child.kill()

    # -- the rest

    async def _end_when_empty(self, store: Store) -> None:
        """--burst: ends when nothing is ready, running or due. What waits for a later time stays."""
        for child in self._children.values():
            await child.ready.wait()
        while True:
            await asyncio.sleep(BURST_LOOK_S)
            try:
                if await store.is_idle():
                    self._end(DRAIN)
                    return
            except (StoreUnavailable, StoreError) as error:
                log.warning("cannot tell whether work is left", extra={"error": str(error)})
