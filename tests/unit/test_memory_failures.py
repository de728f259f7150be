"""Failing, timing out and being cancelled in memory: tries to make it differ from what production does."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from redisched import (
    Call,
    Context,
    JobFailed,
    Outcome,
    Retry,
    Scheduler,
    State,
)
from redisched.settings import WorkerSettings
from redisched.worker.runner import Runner
from tests.unit.conftest import DAY, TOMORROW

pytestmark = pytest.mark.anyio


# -- failing


async def test_a_job_that_uses_up_its_attempts_is_dead(sched: Scheduler) -> None:
    # One attempt more or less than asked for, and an error without its reason.
    ran = []

    @sched.job(retry=TOMORROW)
    def fails(n: int) -> None:
        ran.append(n)
        raise ValueError(f"no {n}")

    job = await sched.enqueue(fails(7), tenant="acme")
    for _ in range(5):
        await sched.run_until_idle()
        sched.clock.advance(DAY)
    assert ran == [7, 7, 7]
    assert await job.status() is State.DEAD
    with pytest.raises(JobFailed, match="ValueError: no 7") as caught:
        await job.result()
    assert (caught.value.job_id, caught.value.error) == (job.id, "ValueError: no 7")
    view = await job.view()
    assert (view.attempts, len(view.runs), view.args) == (3, 3, {"n": 7})
    assert "Traceback" in view.runs[0].error
    letters = [letter async for _, letter in sched.inspector.dead()]
    assert [(letter.id, letter.tenant, letter.name) for letter in letters] == [(job.id, "acme", "fails")]


class Fatal(ValueError): ...


@pytest.mark.parametrize("how", ["never", "fatal", "subclass"])
async def test_what_cannot_succeed_is_tried_once(sched: Scheduler, how: str) -> None:
    # Four more attempts at a malformed address are four more mails about it.
    ran = []

    @sched.job(retry=Retry(max_attempts=5, fatal=(KeyError, ValueError)))
    async def fails() -> None:
        ran.append(1)
        raise {"never": Retry.never("malformed"), "fatal": KeyError("malformed"), "subclass": Fatal("malformed")}[how]

    job = await sched.enqueue(fails())
    for _ in range(3):
        await sched.run_until_idle()
        sched.clock.advance(DAY)
    assert ran == [1]
    with pytest.raises(JobFailed, match="malformed"):
        await job.result()


async def test_an_error_that_is_not_fatal_is_tried_again(sched: Scheduler) -> None:
    # fatal=(KeyError,) must not take LookupError, its parent.
    @sched.job(retry=Retry(max_attempts=5, fatal=(KeyError,)))
    async def fails() -> None:
        raise LookupError

    job = await sched.enqueue(fails())
    await sched.run_until_idle()
    assert await job.status() is State.WAITING


async def test_later_uses_up_no_attempt_and_keeps_its_time(sched: Scheduler) -> None:
    # A handler that waits for a partner may do so a hundred times with two attempts.
    ran = []

    @sched.job(retry=Retry(max_attempts=2))
    async def patient() -> int:
        ran.append(1)
        if len(ran) < 10:
            raise Retry.later(DAY, "not yet")
        return len(ran)

    job = await sched.enqueue(patient())
    for _ in range(9):
        assert await sched.run_until_idle() == 1
        assert await sched.run_until_idle() == 0
        sched.clock.advance(DAY)
    assert await sched.run_until_idle() == 1
    assert await job.result() == 10
    runs = await job.runs()
    assert [run.outcome for run in runs] == [Outcome.LATER] * 9 + [Outcome.DONE]
    assert runs[0].error == "not yet"
    assert {run.attempt for run in runs} == {1}


async def test_later_that_counts_ends_among_the_dead(sched: Scheduler) -> None:
    # counted=True is how a handler bounds its own patience.
    @sched.job(retry=Retry(max_attempts=3))
    async def patient() -> None:
        raise Retry.later(60, "not yet", counted=True)

    job = await sched.enqueue(patient())
    ended = 0
    for _ in range(5):
        ended += await sched.run_until_idle()
        sched.clock.advance(60)
    assert ended == 3
    with pytest.raises(JobFailed, match="not yet"):
        await job.result()


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), asyncio.CancelledError()], ids=repr)
async def test_a_handler_cannot_take_its_worker_with_it(sched: Scheduler, error: BaseException) -> None:
    # sys.exit() in a handler is a failed run; the test that runs it must go on.
    @sched.job(retry=Retry(max_attempts=1))
    async def leaves() -> None:
        raise error

    job = await sched.enqueue(leaves())
    assert await sched.run_until_idle() == 1
    assert await job.status() is State.DEAD


async def test_an_unknown_handler_goes_back_and_is_buried_after_the_limit(sched: Scheduler) -> None:
    # During a deployment some workers know it and others not yet; a name that nobody knows must end all the same.
    job = await sched.enqueue(Call("nobody", 1), tenant="acme")
    limit = WorkerSettings().unknown_limit
    for times in range(1, limit):
        assert await sched.run_until_idle() == 1, times
        sched.clock.advance(90)
    view = await job.view()
    assert (view.state, view.attempts) == (State.WAITING, 0)
    await sched.run_until_idle()
    assert await job.status() is State.DEAD
    with pytest.raises(JobFailed, match="no worker knows its handler"):
        await job.result()


async def test_an_unknown_handler_runs_once_it_is_known(sched: Scheduler) -> None:
    # The same job, with all its attempts.
    job = await sched.enqueue(Call("late", "x"))
    await sched.run_until_idle()

    @sched.job
    def late(ctx: Context, what: str) -> tuple[str, int]:
        return what, ctx.attempt

    sched.clock.advance(1)
    assert await sched.run_until_idle() == 1
    assert await sched.get_job(job.id).result() == ["x", 1]


async def test_arguments_that_do_not_fit_are_buried_at_once(sched: Scheduler) -> None:
    # By name, where the code is not at hand, nothing could be checked; five attempts would not make them fit.
    job = await sched.enqueue(Call("add", 1, b="two"))

    @sched.job
    def add(a: int, b: int) -> int:
        return a + b

    assert await sched.run_until_idle() == 1
    with pytest.raises(JobFailed, match=r"undecodable.*'b'"):
        await job.result()


# -- timeouts


async def test_an_async_handler_past_its_time_is_cancelled(sched: Scheduler) -> None:
    # The cancellation must reach it (so that it can clean up), and the run must say timeout, not failed.
    cleaned = []

    @sched.job(timeout=0.05, retry=Retry(max_attempts=1))
    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append(1)

    job = await sched.enqueue(slow())
    assert await sched.run_until_idle(timeout=10) == 1
    assert cleaned == [1]
    with pytest.raises(JobFailed, match=r"timed out after 0\.05 s"):
        await job.result()
    assert [run.outcome for run in await job.runs()] == [Outcome.TIMEOUT]


async def test_a_sync_handler_past_its_time_is_a_timeout(sched: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    # A thread cannot be stopped: what it returns after its time must not count, and its thread be waited for.
    told = threading.Event()
    cancel = Runner._cancel

    def cancel_and_tell(*args: Any) -> None:
        cancel(*args)
        told.set()

    monkeypatch.setattr(Runner, "_cancel", cancel_and_tell)

    @sched.job(timeout=0.05, retry=TOMORROW)
    def slow() -> str:
        assert told.wait(10)
        return "too late"

    job = await sched.enqueue(slow())
    assert await sched.run_until_idle(timeout=20) == 1
    assert await job.status() is State.WAITING
    assert [run.outcome for run in await job.runs()] == [Outcome.TIMEOUT]


async def test_a_handler_within_its_time_is_left_alone(sched: Scheduler) -> None:
    # The timer of one must not be another's.
    @sched.job(timeout=30)
    async def quick() -> int:
        await asyncio.sleep(0)
        return 1

    jobs = await sched.enqueue_many([quick() for _ in range(20)])
    await sched.run_until_idle()
    assert [await job.result() for job in jobs] == [1] * 20


async def test_a_run_that_hangs_ends_the_call_and_its_job_goes_back(sched: Scheduler) -> None:
    # A hanging handler must fail the user's test with its name, not hang it; no attempt is used up by that.
    go = asyncio.Event()

    @sched.job
    async def hangs(ctx: Context) -> int:
        await go.wait()
        return ctx.attempt

    job = await sched.enqueue(hangs())
    with pytest.raises(TimeoutError, match="hangs"):
        await sched.run_until_idle(timeout=0.02)
    assert await job.status() is not State.RUNNING
    go.set()
    assert await sched.run_until_idle() == 1
    assert await job.result() == 1


async def test_a_job_that_enqueues_itself_for_ever_ends_the_call(sched: Scheduler) -> None:
    # "Until idle" may never be; the timeout must hold although no single run is long.
    @sched.job
    async def again() -> None:
        await sched.enqueue(again())

    await sched.enqueue(again())
    with pytest.raises(TimeoutError, match="again"):
        await sched.run_until_idle(timeout=0.1)
