"""Keys, priorities and what a handler gets, in memory: tries to make it differ from what production does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from redisched import (
    ConfigError,
    Context,
    JobCancelled,
    Retry,
    Scheduler,
    State,
)
from tests.unit.conftest import DAY, TOMORROW

pytestmark = pytest.mark.anyio


# -- keys, cancelling, priorities


async def test_a_key_is_one_job_while_it_lives(sched: Scheduler) -> None:
    # Twice the same key, at once or later, of one tenant or of two; and again after it ended.
    ran: list[str] = []

    @sched.job
    def note(what: str) -> None:
        ran.append(what)

    first, *others = await asyncio.gather(
        *(sched.enqueue(note(f"n{n}"), key="welcome-42", delay=5, tenant="acme") for n in range(5))
    )
    assert first.created
    assert {job.id for job in others} == {first.id}
    assert not any(job.created for job in others)
    stranger = await sched.enqueue(note("stranger"), key="welcome-42", delay=5, tenant="globex")
    assert stranger.created
    assert stranger.id != first.id
    sched.clock.advance(5)
    await sched.run_until_idle()
    assert sorted(ran) == ["n0", "stranger"]
    again = await sched.enqueue(note("again"), key="welcome-42", tenant="acme")
    assert (again.created, again.id) == (True, first.id)
    await sched.run_until_idle()
    assert ran[-1] == "again"


async def test_the_key_of_a_dead_letter_can_be_used_again(sched: Scheduler) -> None:
    # Otherwise an order that failed once could never be placed again.
    ok = []

    @sched.job(retry=Retry(max_attempts=1))
    def order(ctx: Context) -> str:
        if not ok:
            raise ValueError("out of stock")
        return ctx.idempotency_key

    dead = await sched.enqueue(order(), key="order-7")
    await sched.run_until_idle()
    assert await dead.status() is State.DEAD
    ok.append(1)
    again = await sched.enqueue(order(), key="order-7")
    assert again.created
    await sched.run_until_idle()
    assert await again.result() == "order-7"
    assert (await sched.stats()).total("dead") == 0


@pytest.mark.parametrize("delay", [0, 60], ids=["ready", "waiting"])
async def test_a_cancelled_job_does_not_run(sched: Scheduler, delay: int) -> None:
    # Wherever it stands; and the second cancel must say the same as the first.
    @sched.job
    def never() -> None:
        raise AssertionError("it ran")

    job = await sched.enqueue(never(), delay=delay)
    assert await job.cancel()
    assert await job.cancel()
    sched.clock.advance(60)
    assert await sched.run_until_idle() == 0
    assert await job.status() is State.GONE
    with pytest.raises(JobCancelled):
        await job.result()


async def test_a_running_job_that_is_cancelled_changes_nothing_any_more(sched: Scheduler) -> None:
    # Its handler comes back to a lease that is gone: the result must be dropped, and the job not run again.
    began, go = asyncio.Event(), asyncio.Event()

    @sched.job
    async def slow() -> str:
        began.set()
        await go.wait()
        return "done"

    job = await sched.enqueue(slow())
    running = asyncio.create_task(sched.run_until_idle())
    await began.wait()
    assert await job.status() is State.RUNNING
    assert await job.cancel()
    go.set()
    await running
    with pytest.raises(JobCancelled):
        await job.result()
    sched.clock.advance(DAY)
    assert await sched.run_until_idle() == 0


async def test_what_has_ended_cannot_be_cancelled(sched: Scheduler) -> None:
    # True would promise that it did not run.
    @sched.job(retry=Retry(max_attempts=1))
    def end(well: bool) -> int:
        return 1 if well else 1 // 0

    done, dead = await sched.enqueue(end(True)), await sched.enqueue(end(False))
    await sched.run_until_idle()
    assert [await done.cancel(), await dead.cancel()] == [False, False]
    assert await done.result() == 1


async def test_high_runs_before_normal_before_low(sched: Scheduler) -> None:
    # In the order of their priority, and within one in the order they came.
    ran: list[str] = []

    @sched.job
    async def note(what: str) -> None:
        ran.append(what)

    for n in range(3):
        for priority in ("low", "normal", "high"):
            await sched.enqueue(note(f"{priority}{n}"), tenant="acme", priority=priority)  # type: ignore[arg-type]
    await sched.run_until_idle()
    assert ran == [f"{priority}{n}" for priority in ("high", "normal", "low") for n in range(3)]


async def test_jobs_of_a_tenant_run_in_the_order_they_came(sched: Scheduler) -> None:
    # Due at one instant they are only told apart by their ids.
    ran: list[int] = []

    @sched.job
    async def note(n: int) -> None:
        ran.append(n)

    await sched.enqueue_many([note(n) for n in range(100)], tenant="acme", delay=60)
    sched.clock.advance(60)
    assert await sched.run_until_idle() == 100
    assert ran == list(range(100))


# -- what a handler gets


async def test_a_handler_gets_its_context(sched: Scheduler) -> None:
    # Every field; the fence must grow with each delivery, or a late writer could pass for the new one.
    seen: list[Context] = []

    @sched.job(retry=TOMORROW)
    async def look(ctx: Context, n: int) -> None:
        seen.append(ctx)
        await ctx.progress(f"at {n}")
        if ctx.attempt == 1:
            raise ValueError

    at = sched.clock.now() + timedelta(hours=1)
    job = await sched.enqueue(look(5), tenant="ac/me {x}", key="k", at=at)
    for _ in range(2):
        sched.clock.advance(DAY)
        await sched.run_until_idle()
    assert [ctx.attempt for ctx in seen] == [1, 2]
    assert {(ctx.job_id, ctx.tenant, ctx.idempotency_key, ctx.scheduled_at) for ctx in seen} == {
        (job.id, "ac/me {x}", "k", datetime.fromtimestamp(round(at.timestamp() * 1000) / 1000, UTC))
    }
    assert seen[0].fence < seen[1].fence


async def test_progress_is_seen_from_outside(sched: Scheduler) -> None:
    # While it runs, by whoever asks.
    told, go = asyncio.Event(), asyncio.Event()

    @sched.job
    async def slow(*, ctx: Context) -> None:
        await ctx.progress("50 %")
        told.set()
        await go.wait()

    job = await sched.enqueue(slow())
    running = asyncio.create_task(sched.run_until_idle())
    await told.wait()
    view = await job.view()
    assert (view.state, view.progress) == (State.RUNNING, "50 %")
    go.set()
    assert await running == 1


async def test_a_plain_function_that_answers_an_awaitable_is_awaited(sched: Scheduler) -> None:
    # A decorator around an async handler is such a function; unawaited it would end as done without having run.
    ran = []

    async def work() -> int:
        ran.append(1)
        return 7

    @sched.job
    def wrapped() -> Any:
        return work()

    assert await wrapped() == 7
    job = await sched.enqueue(wrapped())
    await sched.run_until_idle()
    assert ran == [1, 1]
    assert await job.result() == 7


async def test_the_lifespans_value_reaches_the_handlers() -> None:
    # Entered before the first handler, left after the last, once.
    events: list[str] = []

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[dict[str, str]]:
        events.append("open")
        yield {"pool": "database"}
        events.append("close")

    sched = Scheduler("memory://", lifespan=lifespan)

    @sched.job
    async def use(ctx: Context) -> None:
        events.append(ctx.resource["pool"])

    async with sched:
        await sched.enqueue_many([use(), use()])
        await sched.run_until_idle()
    assert events == ["open", "database", "database", "close"]


async def test_a_lifespan_that_fails_says_so_and_nothing_is_lost(sched: Scheduler) -> None:
    # A job that was claimed for a worker that cannot start would wait for its lease to end.
    broken = [True]

    @sched.lifespan
    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        if broken:
            raise OSError("no database")
        yield

    @sched.job
    def note() -> int:
        return 1

    job = await sched.enqueue(note())
    with pytest.raises(ConfigError, match="no database"):
        await sched.run_until_idle()
    assert await job.status() is State.READY
    broken.clear()
    await sched.run_until_idle()
    assert await job.result() == 1


async def test_handlers_enqueue_other_jobs(sched: Scheduler) -> None:
    # "Until idle" includes what the jobs themselves make due, but not what they delay.
    ran: list[str] = []

    @sched.job
    def leaf(what: str) -> None:
        ran.append(what)

    @sched.job
    async def parent(depth: int) -> None:
        ran.append(f"parent{depth}")
        await sched.enqueue(parent(depth - 1) if depth else leaf("now"))
        await sched.enqueue(leaf(f"later{depth}"), delay=DAY)

    await sched.enqueue(parent(2))
    assert await sched.run_until_idle() == 4
    assert ran == ["parent2", "parent1", "parent0", "now"]
    sched.clock.advance(DAY)
    assert await sched.run_until_idle() == 3
    assert sorted(ran[4:]) == ["later0", "later1", "later2"]


async def test_awaiting_a_call_runs_it_here_and_stores_nothing(sched: Scheduler) -> None:
    # The other way to test a handler: no queue at all, its exception as it is.
    @sched.job
    async def divide(ctx: Context, a: int, b: int) -> float:
        return a / b

    assert await divide(6, 3) == 2.0
    with pytest.raises(ZeroDivisionError):
        await divide(1, 0)
    assert await sched.run_until_idle() == 0


async def test_more_jobs_than_a_worker_holds_at_once(sched: Scheduler) -> None:
    # Past the worker's concurrency and the batch of a claim the loop goes round again.
    ran = []

    @sched.job
    async def note(n: int) -> None:
        ran.append(n)

    await sched.enqueue_many([note(n) for n in range(600)])
    assert await sched.run_until_idle() == 600
    assert sorted(ran) == list(range(600))
