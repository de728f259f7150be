"""The parts of a worker, stepped one by one: races that whole processes meet once in a thousand times."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from redisched import Scheduler, State
from redisched.settings import WorkerSettings
from redisched.worker.finisher import Finisher, Held
from redisched.worker.ledger import Ledger, slots_for
from redisched.worker.process import Worker
from redisched.worker.renewer import Renewer

pytestmark = pytest.mark.anyio


async def held_jobs(sched: Scheduler, ledger: Ledger, count: int) -> list[Held]:
    """Claimed jobs of one shard, in a worker's hand."""

    async def nothing() -> None: ...

    handler = sched.job(nothing)
    await sched.enqueue_many([handler() for _ in range(count)], tenant="acme")
    shard = sched.store.keys.shard_of("acme", "")
    _, claimed = await sched.store.claim(shard, count, 10_000, "w")
    assert len(claimed) == count
    return [Held(job, ledger.take(shard, job.member, 0.0), tenant="acme") for job in claimed]


async def test_an_outcome_finds_a_sender_whenever_it_comes(sched: Scheduler) -> None:
    # Between a sender's last look and its end there are turns of the loop in which an outcome could wait for ever.
    turns = 60
    ledger = Ledger(2 * turns)
    jobs = await held_jobs(sched, ledger, 2 * turns)
    finisher = Finisher(sched.store, ledger, "w", 100, lambda: None)
    for turn in range(turns):
        finisher.complete(jobs[2 * turn])
        for _ in range(turn):
            await asyncio.sleep(0)
        finisher.complete(jobs[2 * turn + 1])
        await finisher.flush()
        assert finisher.ended == 2 * turn + 2, f"handed in {turn} turns later, it was never sent"


async def test_a_renewal_outlives_the_ledger_it_was_read_from(
    sched: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A child dies, and its ledger is closed, while the renewal of its leases is on its way: renewing must go on.
    ledger = Ledger(1)
    await held_jobs(sched, ledger, 1)

    async def renew(*_: Any) -> list[int]:
        ledger.close()
        return [0]

    monkeypatch.setattr(sched.store, "renew", renew)
    assert await Renewer(sched.store, 10_000, lambda: [ledger]).run_once() == 1


async def test_a_store_is_idle_only_if_nothing_came_meanwhile(
    sched: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Shards are asked one after the other: a running job enqueues to the first while the second is asked, and ends.
    original = sched.store.call
    came: list[int] = []

    async def nothing() -> None: ...

    handler = sched.job(nothing)

    async def call(name: str, shard: int, *args: Any, **options: Any) -> list[Any]:
        answer = await original(name, shard, *args, **options)
        if name == "idle" and shard == 1 and not came:
            came.append(1)
            while (await sched.enqueue(handler())).shard != 0:
                pass
        return answer

    monkeypatch.setattr(sched.store, "call", call)
    assert not await sched.store.is_idle()


async def drained(sched: Scheduler, handler: Any, *, late_claim: bool) -> Any:
    """One job, claimed before a drain or by a claim that was on its way when it began."""
    job = await sched.enqueue(handler(), tenant="acme")
    settings = WorkerSettings(cancel_grace_s=20)
    ledger = Ledger(slots_for(settings.concurrency, settings.batch))
    worker = Worker(sched.store, sched.registry, settings, ledger, "w")
    await worker.open()
    worker.runner.draining = late_claim
    assert (await worker.fetcher.run_once((job.shard,)))[0] == 1
    await worker.drain(0)
    await worker.close()
    return await job.view()


async def test_a_thread_that_gets_to_its_end_during_a_drain_is_done(sched: Scheduler) -> None:
    # It cannot be stopped, so its effect is there: given back, it would have a second one.
    ran = []
    begun = threading.Event()

    @sched.job
    def finishes() -> None:
        begun.set()
        time.sleep(0.2)  # what the drain finds under way
        ran.append(1)

    view = await drained(sched, finishes, late_claim=False)
    assert (view.state, ran) == (State.GONE, [1])
    assert begun.is_set()


async def test_what_a_late_claim_brings_goes_back_unstarted(sched: Scheduler) -> None:
    # A claim that was on its way when the drain began must not start work in a process that ends.
    ran = []

    @sched.job
    async def starts() -> None:
        ran.append(1)

    view = await drained(sched, starts, late_claim=True)
    assert (view.state, view.attempts, ran) == (State.WAITING, 0, [])
