"""Schedules through the API on memory://: tries to make one forget, repeat or overtake itself."""

from __future__ import annotations

import contextlib
from datetime import datetime, timedelta
from typing import Any

import pytest

from redisched import (
    Call,
    Context,
    Cron,
    Every,
    InvalidSchedule,
    Misfire,
    Outcome,
    RRule,
    ScheduleChanged,
    Scheduler,
    State,
    UnknownSchedule,
)
from tests.unit.conftest import DAY, TOMORROW

pytestmark = pytest.mark.anyio

SECOND, MINUTE, HOUR = (timedelta(seconds=n) for n in (1, 60, 3_600))
HOURLY = Cron("0 * * * *")
NOTHING: Call[Any] = Call("nothing")


class Notes:
    """What a handler saw: nominal times, ids and keys."""

    def __init__(self, sched: Scheduler) -> None:
        self.sched = sched
        self.times: list[datetime] = []
        self.ids: list[str] = []
        self.keys: list[str] = []

        @sched.job
        async def note(ctx: Context, what: str = "") -> str:
            self.times.append(ctx.scheduled_at)
            self.ids.append(ctx.job_id)
            self.keys.append(ctx.idempotency_key)
            return what

        self.note = note

        @sched.job(retry=TOMORROW)
        async def lives() -> None:
            raise ValueError("again tomorrow")

        self.lives: Call[Any] = lives()

    async def run_at(self, moment: datetime) -> int:
        self.sched.clock.set(moment)
        return await self.sched.run_until_idle()

    async def run_for(self, seconds: int) -> None:
        for _ in range(seconds):
            await self.sched.run_until_idle()
            self.sched.clock.advance(SECOND)


@pytest.fixture
def notes(sched: Scheduler) -> Notes:
    sched.clock.set((sched.clock.now() + HOUR).replace(minute=30, second=0, microsecond=0))
    return Notes(sched)


def hour_after(sched: Scheduler, n: int = 1) -> datetime:
    return sched.clock.now().replace(minute=0, second=0) + n * HOUR


# -- creating and replacing


async def test_it_fires_at_its_times_and_says_so(sched: Scheduler, notes: Notes) -> None:
    # Not early, once, with its nominal time and an id that names both.
    nominal = hour_after(sched)
    plan = await sched.schedule("report", notes.note("x"), HOURLY, tenant="acme")
    assert plan.version == 1
    view = await plan.view()
    assert (view.state, view.next_at, view.looks_at, view.call, view.made) == ("active", nominal, nominal, "note", 0)
    assert (view.args, view.misfire, view.overlap, view.grace) == ({"what": "x"}, "once", "skip", HOUR)
    assert await notes.run_at(nominal - timedelta(milliseconds=1)) == 0
    assert await notes.run_at(nominal) == 1
    assert await sched.run_until_idle() == 0
    assert (notes.times, notes.ids) == ([nominal], [f"acme/report@{round(nominal.timestamp() * 1000)}"])
    assert notes.keys == notes.ids
    view = await plan.view()
    assert (view.made, view.next_at, await plan.preview(2)) == (1, nominal + HOUR, [nominal + n * HOUR for n in (1, 2)])


async def test_the_same_again_changes_nothing(sched: Scheduler, notes: Notes) -> None:
    # Every start of every worker says it again: neither version nor phase may move.
    rules: Any = {"cron": HOURLY, "every": Every(HOUR), "rrule": RRule("FREQ=DAILY", dtstart=datetime(2027, 1, 1, 9))}  # noqa: DTZ001 - wall time
    for name, rule in rules.items():
        plan = await sched.schedule(name, notes.note(), rule, jitter=SECOND)
        before = await plan.view()
        sched.clock.advance(7 * MINUTE)
        again = await sched.schedule(name, notes.note(), rule, jitter=SECOND)
        assert (again.version, await again.view()) == (1, before), name


async def test_other_policies_keep_the_next_time(sched: Scheduler, notes: Notes) -> None:
    # An interval that starts anew with each deployment never fires.
    plan = await sched.schedule("s", notes.note(), Every(HOUR))
    before = await plan.view()
    sched.clock.advance(50 * MINUTE)
    changed = await sched.schedule("s", notes.note("other"), Every(HOUR), grace=DAY, misfire=Misfire.SKIP)
    view = await changed.view()
    assert (changed.version, view.next_at, view.rule) == (2, before.next_at, before.rule)
    assert (view.grace, view.misfire, view.args) == (DAY, "skip", {"what": "other"})
    sched.clock.advance(10 * MINUTE)
    assert await sched.run_until_idle() == 1


async def test_another_rule_starts_anew_from_now(sched: Scheduler, notes: Notes) -> None:
    # What the old rule missed is not owed by the new one, nor are its runs counted against it.
    await sched.schedule("s", notes.note(), Cron("* * * * *", max_runs=1), misfire=Misfire.run_all(max=9))
    await notes.run_at(sched.clock.now() + MINUTE)
    plan = await sched.schedule("s", notes.note(), Cron("*/2 * * * *", max_runs=2), misfire=Misfire.run_all(max=9))
    view = await plan.view()
    assert (view.state, view.made, view.version) == ("active", 0, 2)
    sched.clock.advance(DAY)
    plan = await sched.schedule("s", notes.note(), HOURLY)
    assert (await plan.view()).next_at == hour_after(sched)
    assert await sched.run_until_idle() == 0


async def test_a_version_that_somebody_else_made_is_not_overwritten(sched: Scheduler, notes: Notes) -> None:
    # 0 means new; a stale form must not win.
    with pytest.raises(ScheduleChanged, match="does not exist"):
        await sched.schedule("s", NOTHING, HOURLY, if_version=3)
    assert await sched.plans() == []
    plan = await sched.schedule("s", NOTHING, HOURLY, if_version=0)
    with pytest.raises(ScheduleChanged, match="to be new"):
        await sched.schedule("s", NOTHING, HOURLY, if_version=0)
    changed = await sched.schedule("s", NOTHING, Every(HOUR), if_version=plan.version)
    with pytest.raises(ScheduleChanged) as caught:
        await sched.schedule("s", NOTHING, Cron("1 * * * *"), if_version=plan.version)
    assert (caught.value.wanted, caught.value.version) == (1, changed.version)
    assert (await changed.view()).rule["kind"] == "every"


async def test_it_ends_with_its_runs_and_with_its_rule(sched: Scheduler, notes: Notes) -> None:
    # An ended one stays to be seen, and nothing can be paused in it.
    now = sched.clock.now()
    runs = await sched.schedule("runs", notes.note(), Cron("* * * * *", max_runs=2))
    ends = await sched.schedule("ends", notes.note(), Cron("* * * * *", end=now + 3 * MINUTE))
    for n in range(1, 6):
        await notes.run_at(now + n * MINUTE)
    for plan, made in ((runs, 2), (ends, 3)):
        view = await plan.view()
        assert (view.state, view.made, view.missed, view.next_at, view.looks_at) == ("ended", made, 0, None, None)
        assert await plan.preview() == []
        with pytest.raises(InvalidSchedule, match="has ended"):
            await plan.pause()


# -- pausing


@pytest.mark.parametrize(
    ("misfire", "hours", "missed"),
    [(Misfire.SKIP, [], 5), (Misfire.RUN_ONCE, [5], 4), (Misfire.run_all(max=3), [3, 4, 5], 2)],
    ids=str,
)
async def test_what_fell_into_a_pause_follows_the_misfire_policy(
    sched: Scheduler, notes: Notes, misfire: Misfire, hours: list[int], missed: int
) -> None:
    # Nothing while it is paused, and at its end what an outage would have left.
    times = [hour_after(sched, n) for n in range(6)]
    plan = await sched.schedule("s", notes.note(), HOURLY, misfire=misfire, grace=DAY)
    await plan.pause("for the holidays")
    view = await plan.view()
    assert (view.state, view.note, view.looks_at, plan.version) == ("paused", "for the holidays", None, 2)
    sched.clock.advance(5 * HOUR)
    assert await sched.run_until_idle() == 0
    await plan.resume()
    await notes.run_for(5)
    assert notes.times == [times[n] for n in hours]
    view = await plan.view()
    assert (view.state, view.note, view.missed, view.next_at) == ("active", "", missed, hour_after(sched))


async def test_pausing_twice_is_pausing_once(sched: Scheduler, notes: Notes) -> None:
    # A version that moves without a change would break whoever compares it.
    plan = await sched.schedule("s", NOTHING, HOURLY)
    for change, version in ((plan.pause, 2), (plan.pause, 2), (plan.resume, 3), (plan.resume, 3)):
        await change()
        assert plan.version == version
    with pytest.raises(InvalidSchedule, match="at most 500"):
        await plan.pause("x" * 501)


async def test_replacing_a_paused_one_leaves_it_paused(sched: Scheduler, notes: Notes) -> None:
    # A deployment must not undo what somebody did by hand at night.
    plan = await sched.schedule("s", notes.note(), HOURLY)
    await plan.pause("broken upstream")
    for rule, grace in ((HOURLY, DAY), (Cron("* * * * *"), DAY)):
        await sched.schedule("s", notes.note(), rule, grace=grace)
        view = await plan.view()
        assert (view.state, view.note) == ("paused", "broken upstream")
    sched.clock.advance(2 * HOUR)
    assert await sched.run_until_idle() == 0


async def test_a_pause_just_after_a_run_keeps_the_interval(sched: Scheduler, notes: Notes) -> None:
    # It counts from the end of its run, which was a second ago.
    plan = await sched.schedule("s", notes.note(), Every(HOUR, after="completion"))
    keys = sched.store.keys.shards[sched.book.shard_of("s", "default")]
    state = f"{plan.version} {sched.clock.now_ms()} d 1 0 0 0 100 1000000000 -"
    await sched.store.client.hset(keys["planned"], "default/s", state)
    sched.clock.advance(SECOND)
    await plan.pause()
    await plan.resume()
    assert await sched.run_until_idle() == 0


# -- deleting, history


async def test_deleting_while_it_runs(sched: Scheduler, notes: Notes) -> None:
    # What lives, lives on; its end must not bring the schedule or its history back.
    plan = await sched.schedule("s", notes.lives, HOURLY, tenant="acme")
    await notes.run_at(hour_after(sched))
    (living,) = (await plan.view()).living
    assert await plan.delete() is True
    assert await plan.delete() is False
    assert await sched.get_job(living, "acme").status() is State.WAITING
    for _ in range(3):
        sched.clock.advance(DAY)
        await sched.run_until_idle()
    assert await sched.get_job(living, "acme").status() is State.DEAD
    assert await sched.plans() == []
    for ask in (plan.view, plan.runs, plan.pause, plan.resume, plan.trigger, plan.preview):
        with pytest.raises(UnknownSchedule, match="no schedule 's'"):
            await ask()
    keys = sched.store.keys.shards[sched.book.shard_of("s", "acme")]
    for word in ("plan", "planned", "plans", "roster"):
        assert await sched.store.client.exists(keys[word]) == 0, word
    assert await sched.store.client.exists(keys.history("acme/s")) == 0


async def test_history_tells_each_attempt_the_newest_first(sched: Scheduler, notes: Notes) -> None:
    # Failed, done and triggered ones; each with the time it stood for.
    tries: list[int] = []

    @sched.job(retry=TOMORROW)
    async def flaky() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("first")
        return "ok"

    nominal = hour_after(sched)
    plan = await sched.schedule("s", flaky(), Cron("0 * * * *", max_runs=1))
    assert await plan.runs() == []
    await notes.run_at(nominal)
    await notes.run_at(nominal + DAY)
    await plan.trigger()
    await sched.run_until_idle()
    runs = await plan.runs()
    found = [(run.outcome, run.attempt, run.nominal_at, run.result_bytes) for run in runs]
    assert found == [
        (Outcome.DONE, 1, nominal + DAY, 3),
        (Outcome.DONE, 2, nominal, 3),
        (Outcome.FAILED, 1, nominal, 0),
    ]
    assert "first" in runs[-1].error
    assert await plan.runs(limit=1) == runs[:1]
    with pytest.raises(InvalidSchedule, match="limit"):
        await plan.runs(limit=0)


async def test_history_is_bounded(notes: Notes) -> None:
    # In number and in time: a minutely schedule must not fill the server.
    async with Scheduler("memory://", history_runs=5, history_days=1) as sched:
        own = Notes(sched)
        plan = await sched.schedule("s", own.note(), Every(MINUTE))
        for _ in range(9):
            await own.run_at(sched.clock.now() + MINUTE)
        assert [run.nominal_at for run in await plan.runs()] == own.times[:-6:-1]
        await own.run_at(sched.clock.now() + DAY + SECOND)
        assert len(await plan.runs()) == 1


# -- trigger


async def test_a_trigger_is_made_at_once_and_moves_nothing(sched: Scheduler, notes: Notes) -> None:
    # Also when it is paused, and whatever lives; twice is two runs, each with an id and a key of its own.
    plan = await sched.schedule("s", notes.note("x"), HOURLY, tenant="acme", idempotency_key="{schedule}-{hour}")
    await plan.pause()
    before = await plan.view()
    jobs = [await plan.trigger(), await plan.trigger()]
    assert await sched.run_until_idle() == 2
    assert notes.ids == [job.id for job in jobs] == notes.keys
    assert len(set(notes.ids)) == 2
    assert await jobs[0].result() == "x"
    view = await plan.view()
    assert (view.next_at, view.made, view.version, view.state) == (before.next_at, 0, before.version, "paused")
    assert [run.job_id for run in await plan.runs()] == notes.ids[::-1]


# -- backfill


async def test_a_backfill_is_paced_and_tells_how_far_it_is(sched: Scheduler, notes: Notes) -> None:
    # One a second, oldest first, both ends included; its own times and counts stay as they are.
    last = hour_after(sched, 0)
    plan = await sched.schedule("s", notes.note(), HOURLY, misfire=Misfire.SKIP, grace=timedelta(0))
    backfill = await plan.backfill(last - 4 * HOUR, last)
    with pytest.raises(InvalidSchedule, match="under way"):
        await plan.backfill(last - HOUR, last)
    for n in range(5):
        far = await backfill.view()
        assert far is not None
        assert (far.made, far.total, far.until) == (n, backfill.total, last)
        await sched.run_until_idle()
        assert notes.times == [last - (4 - m) * HOUR for m in range(n + 1)]
        sched.clock.advance(SECOND)
    await backfill.wait(timeout=1)
    assert (await backfill.view(), await backfill.stop()) == (None, False)
    view = await plan.view()
    assert (view.made, view.missed, view.next_at) == (0, 0, last + HOUR)


async def test_a_backfill_can_be_stopped_and_begun_again(sched: Scheduler, notes: Notes) -> None:
    # What was made stays, what was not is not made; also for a schedule that is paused.
    last = hour_after(sched, 0)
    plan = await sched.schedule("s", notes.note(), HOURLY)
    await plan.pause()
    backfill = await plan.backfill(last - 9 * HOUR, last)
    await notes.run_for(3)
    assert await backfill.stop() is True
    await notes.run_for(3)
    assert len(notes.times) == 3
    await plan.backfill(last, last)
    await notes.run_for(2)
    assert notes.times[3:] == [last]


async def test_a_backfill_waits_for_the_one_that_lives(sched: Scheduler, notes: Notes) -> None:
    # One after the other: it is neither skipped nor run beside it.
    last = hour_after(sched, 0)
    plan = await sched.schedule("s", notes.lives, HOURLY)
    await plan.pause()
    await plan.backfill(last - HOUR, last)
    await notes.run_for(5)
    assert len((await plan.view()).living) == 1
    await sched.get_job((await plan.view()).living[0]).cancel()
    await notes.run_for(5)
    assert [run.nominal_at for run in await plan.runs()] == [last, last - HOUR, last - HOUR]


async def test_a_backfill_of_a_schedule_with_max_runs_makes_all(sched: Scheduler, notes: Notes) -> None:
    # Its total was told; a schedule that has ended can be backfilled too.
    last = hour_after(sched, 0)
    plan = await sched.schedule("s", notes.note(), Cron("0 * * * *", max_runs=2))
    backfill = await plan.backfill(last - 4 * HOUR, last)
    await notes.run_for(8)
    assert (len(notes.times), backfill.total) == (5, 5)


async def test_a_backfill_makes_nothing_of_the_future(sched: Scheduler, notes: Notes) -> None:
    # Refused or cut at now; an occurrence is never made before its time, and never twice.
    plan = await sched.schedule("s", notes.note(), HOURLY)
    with contextlib.suppress(InvalidSchedule):
        await plan.backfill(sched.clock.now(), sched.clock.now() + 2 * HOUR)
    await notes.run_for(5)
    assert notes.times == []


async def test_backfills_that_are_refused(sched: Scheduler, notes: Notes) -> None:
    # Each with its reason, and nothing begun.
    now = sched.clock.now()
    plan = await sched.schedule("s", notes.note(), Cron("* * * * * *", seconds=True))
    for start, end, named in [
        (now, now - SECOND, "before the start"),
        (now - 100_001 * SECOND, now, "100,000"),
        (now - timedelta(milliseconds=2), now - timedelta(milliseconds=1), "no times"),
        (now.replace(tzinfo=None), now, "time zone"),
    ]:
        with pytest.raises(InvalidSchedule, match=named):
            await plan.backfill(start, end)
    assert (await plan.view()).backfill is None
    drifts = await sched.schedule("d", notes.note(), Every(HOUR, after="completion"))
    with pytest.raises(InvalidSchedule, match="end of its runs"):
        await drifts.backfill(now - DAY, now)
    with pytest.raises(UnknownSchedule):
        await sched.get_plan("none").backfill(now - DAY, now)
