"""`Scheduler("memory://")`, the helper for users' own tests: tries to make it differ from what production does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from redisched import (
    Call,
    ConfigError,
    Context,
    InvalidCall,
    JobCancelled,
    JobFailed,
    MovableClock,
    Outcome,
    PayloadTooLarge,
    PayloadUndecodable,
    Retry,
    Scheduler,
    State,
    UnknownJob,
)
from redisched.settings import WorkerSettings
from redisched.worker.runner import Runner

pytestmark = pytest.mark.anyio

DAY = timedelta(days=1)
TOMORROW = Retry(max_attempts=3, backoff="constant", base=DAY, cap=DAY, jitter=0)


@pytest.fixture
async def sched() -> AsyncIterator[Scheduler]:
    async with Scheduler("memory://", shards=2) as opened:
        yield opened


@dataclass
class Report:
    title: str
    pages: int


# -- time


async def test_tomorrows_retries_run_today(sched: Scheduler) -> None:
    # A retry that sleeps makes a test of a day; one that comes early is no test of it.
    tries: list[datetime] = []

    @sched.job(retry=TOMORROW)
    async def flaky() -> str:
        tries.append(sched.clock.now())
        if len(tries) < 3:
            raise ValueError(f"try {len(tries)}")
        return "at last"

    start = sched.clock.now()
    job = await sched.enqueue(flaky())
    assert await sched.run_until_idle() == 1
    for _ in range(2):
        assert await job.status() is State.WAITING
        sched.clock.advance(DAY - timedelta(milliseconds=1))
        assert await sched.run_until_idle() == 0
        sched.clock.advance(timedelta(milliseconds=1))
        assert await sched.run_until_idle() == 1
    assert tries == [start, start + DAY, start + 2 * DAY]
    assert await job.result() == "at last"
    assert [(run.attempt, run.outcome) for run in await job.runs()] == [
        (1, Outcome.FAILED),
        (2, Outcome.FAILED),
        (3, Outcome.DONE),
    ]


@pytest.mark.parametrize("after", [DAY, 86_400, 86_400.0])
async def test_a_delay_and_a_time_are_kept_to_the_millisecond(sched: Scheduler, after: Any) -> None:
    # Both ends: not a millisecond early, and due on the instant itself.
    seen: list[str] = []

    @sched.job
    def note(what: str) -> None:
        seen.append(what)

    await sched.enqueue(note("delayed"), delay=after)
    await sched.enqueue(note("timed"), at=sched.clock.now() + DAY)
    sched.clock.advance(DAY - timedelta(milliseconds=1))
    assert (await sched.run_until_idle(), seen) == (0, [])
    sched.clock.advance(0.001)
    assert await sched.run_until_idle() == 2
    assert sorted(seen) == ["delayed", "timed"]


async def test_the_clock_can_be_given(sched: Scheduler) -> None:
    # A test that needs the 29th of February.
    leap = datetime(2028, 2, 29, tzinfo=UTC)
    async with Scheduler("memory://", clock=MovableClock(leap)) as other:
        assert other.clock.now() == leap
        await other.enqueue(Call("nothing"), at=leap + DAY)
        assert (await other.stats()).next_due == leap + DAY


async def test_a_time_in_the_past_is_now(sched: Scheduler) -> None:
    # Late is late: it must run, not be refused or wait for ever.
    @sched.job
    def note() -> int:
        return 1

    job = await sched.enqueue(note(), at=datetime(2001, 1, 1, tzinfo=UTC))
    assert await sched.run_until_idle() == 1
    assert await job.result() == 1


# -- results


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (None, None),
        (0, int),
        ("", str),
        (b"\x00\xff", bytes),
        ([1, 2], list[int]),
        (Report("a", 3), Report),
        (datetime(2027, 1, 1, tzinfo=UTC), datetime),
        (timedelta(minutes=5), timedelta),
        ({"a": (1, 2)}, dict[str, tuple[int, int]]),
    ],
    ids=str,
)
async def test_a_result_has_the_type_that_was_declared(sched: Scheduler, value: Any, hint: Any) -> None:
    # Falsy ones must be kept too; a dataclass must not come back as a dict.
    async def give():  # type: ignore[no-untyped-def]
        return value

    give.__annotations__["return"] = hint
    handler = sched.job(give)
    job = await sched.enqueue(handler())
    await sched.run_until_idle()
    found = await job.result(timeout=1)
    assert (found, type(found)) == (value, type(value))
    assert await job.status() is State.GONE


async def test_a_result_can_be_asked_for_elsewhere(sched: Scheduler) -> None:
    # By its id alone, as a web request would: plain data then, because no code is at hand.
    @sched.job
    def make() -> Report:
        return Report("a", 3)

    job = await sched.enqueue(make(), tenant="acme")
    await sched.run_until_idle()
    assert await sched.get_job(job.id, "acme").result() == {"title": "a", "pages": 3}


async def test_results_that_are_not_kept(sched: Scheduler) -> None:
    # None would look like a result; to say that nothing was kept is honest.
    @sched.job(keep_result=False)
    def gone() -> int:
        return 1

    @sched.job(keep_result=True)
    def kept() -> None: ...

    lost, found = await sched.enqueue(gone()), await sched.enqueue(kept())
    await sched.run_until_idle()
    with pytest.raises(UnknownJob, match="keep_result"):
        await lost.result()
    assert await found.result() is None
    assert (await found.view()).outcome == "done"


@pytest.mark.parametrize("value", [object(), 2**70], ids=["object", "huge"])
async def test_a_result_that_cannot_be_stored_is_said_and_the_job_is_done(sched: Scheduler, value: Any) -> None:
    # The work was done: running it again because of its return value would do it twice.
    @sched.job
    def give() -> Any:
        return value

    job = await sched.enqueue(give())
    assert await sched.run_until_idle() == 1
    with pytest.raises(PayloadUndecodable, match="cannot be stored as a result"):
        await job.result()
    sched.clock.advance(DAY)
    assert await sched.run_until_idle() == 0


async def test_a_circular_result_ends_the_job_too(sched: Scheduler) -> None:
    # An outcome that raises while it is packed is never sent: the job would be held for ever.
    @sched.job
    def give() -> Any:
        value: list[Any] = []
        value.append(value)
        return value

    job = await sched.enqueue(give())
    assert await sched.run_until_idle() == 1
    with pytest.raises(PayloadUndecodable, match="cannot be stored as a result"):
        await job.result()


async def test_a_result_of_another_type_than_declared_is_said_in_our_words(sched: Scheduler) -> None:
    # `-> int` that returns text: the error must be one that `except RedischedError` catches.
    @sched.job
    def give() -> int:
        return "seven"  # type: ignore[return-value]

    job = await sched.enqueue(give())
    await sched.run_until_idle()
    with pytest.raises(PayloadUndecodable):
        await job.result()


async def test_waiting_for_a_result_ends(sched: Scheduler) -> None:
    # Nobody runs it: the wait must end by its own time, and say where the job is.
    job = await sched.enqueue(Call("nobody"), delay=60)
    with pytest.raises(TimeoutError, match="still waiting"):
        await job.result(timeout=0.01)
    with pytest.raises(TimeoutError):
        await job.result(timeout=timedelta(milliseconds=1))


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


# -- opening and closing


async def test_nested_use_opens_once_and_closes_last() -> None:
    # A library and the application may both open it: the inner end must not close the outer's connection.
    sched = Scheduler("memory://")
    async with sched:
        job = await sched.enqueue(Call("x"), delay=60)
        async with sched as inner:
            assert inner is sched
            assert await job.status() is State.WAITING
        assert await job.status() is State.WAITING
        await sched.enqueue(Call("x"))
    with pytest.raises(ConfigError, match="not open"):
        await sched.enqueue(Call("x"))


async def test_two_schedulers_in_memory_share_nothing(sched: Scheduler) -> None:
    # A test must not see the jobs of another.
    async with Scheduler("memory://", shards=2) as other:
        await other.enqueue(Call("x"))
        assert (await other.stats()).total("ready") == 1
        assert (await sched.stats()).total("ready") == 0


async def test_an_application_can_be_pointed_to_memory() -> None:
    # The way a user's conftest does it; too late when it is open already.
    sched = Scheduler("redis://nowhere.invalid:1")
    sched.use("memory://")
    async with sched:
        await sched.enqueue(Call("x"))
        with pytest.raises(ConfigError, match="open"):
            sched.use("redis://elsewhere")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"at": datetime(2027, 1, 1)}, "time zone"),  # noqa: DTZ001 - what is tried
        ({"at": "tomorrow"}, "time zone"),
        ({"at": datetime(2027, 1, 1, tzinfo=UTC), "delay": 5}, "not both"),
        ({"delay": -1}, "negative"),
        ({"delay": "5"}, "delay="),
        ({"delay": float("nan")}, "delay="),
        ({"delay": float("inf")}, "delay="),
        ({"priority": "urgent"}, "high, normal, low"),
        ({"key": ""}, "key"),
        ({"key": "x" * 513}, "key"),
        ({"durability": "forever"}, "durability"),
        ({"tenant": ""}, "tenant"),
        ({"tenant": "\ud800"}, "tenant"),
    ],
    ids=str,
)
async def test_a_wrong_enqueue_stores_nothing_and_says_why(sched: Scheduler, options: Any, named: str) -> None:
    # Validate first, write after.
    with pytest.raises((InvalidCall, ConfigError), match=named):
        await sched.enqueue(Call("x"), **options)
    assert (await sched.stats()).tenants == ()


async def test_what_is_no_call_is_refused(sched: Scheduler) -> None:
    # `enqueue(send_email)` without calling it is easily written.
    @sched.job
    def mail() -> None: ...

    for wrong in (mail, mail.function, "mail", None):
        with pytest.raises(InvalidCall, match="enqueue takes a call"):
            await sched.enqueue(wrong)  # type: ignore[arg-type]


async def test_a_payload_past_the_limit_is_refused_whole(sched: Scheduler) -> None:
    # One of many that is too large must not leave the others behind.
    limit = sched.settings.max_payload_bytes
    with pytest.raises(PayloadTooLarge) as caught:
        await sched.enqueue_many([Call("x", "small"), Call("x", "l" * limit)])
    assert (caught.value.limit, caught.value.size > limit) == (limit, True)
    assert (await sched.stats()).tenants == ()
