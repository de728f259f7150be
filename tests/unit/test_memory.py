"""`Scheduler("memory://")`, the helper for users' own tests: tries to make it differ from what production does."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from redisched import (
    Call,
    ConfigError,
    InvalidCall,
    MovableClock,
    Outcome,
    PayloadTooLarge,
    PayloadUndecodable,
    Scheduler,
    State,
    UnknownJob,
)
from tests.unit.conftest import DAY, TOMORROW

pytestmark = pytest.mark.anyio


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
        with pytest.raises(InvalidCall, match="a call is needed"):
            await sched.enqueue(wrong)  # type: ignore[arg-type]


async def test_a_payload_past_the_limit_is_refused_whole(sched: Scheduler) -> None:
    # One of many that is too large must not leave the others behind.
    limit = sched.settings.max_payload_bytes
    with pytest.raises(PayloadTooLarge) as caught:
        await sched.enqueue_many([Call("x", "small"), Call("x", "l" * limit)])
    assert (caught.value.limit, caught.value.size > limit) == (limit, True)
    assert (await sched.stats()).tenants == ()
