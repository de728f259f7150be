"""After an outage, exactly the occurrences that the policy promises: tries to lose one, or to make one twice.

The oracle is a list and a few comparisons, from the rule's own preview. `REDISCHED_OUTAGE_CASES` asks for more
cases, `REDISCHED_OUTAGE_SEED` repeats a run.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from redisched import Call, Context, Cron, Every, Misfire, MovableClock, Outcome, Overlap, Plan, Retry, RRule, Scheduler
from redisched.ids import random_name
from tests.support.servers import ServerProcess

pytestmark = pytest.mark.anyio

SEED = int(os.environ.get("REDISCHED_OUTAGE_SEED") or random.SystemRandom().randrange(2**32))
CASES = int(os.environ.get("REDISCHED_OUTAGE_CASES") or 400)
BATCHES = 8
IN_TIME = timedelta(seconds=10)
SECOND, MINUTE, HOUR, DAY = (timedelta(seconds=n) for n in (1, 60, 3_600, 86_400))
OUTAGE = 2 * DAY
LONGEST_S = 300
# Shorter ones meet the walk that is cut just before now: see tests/unit/test_steps.py.
INTERVALS_S = (6, 7, 45, 60, 90, 1_800, 5_400, 86_400)
# Local times around which the clocks change, and a day on which they do not.
PLACES = [
    ("Europe/Berlin", datetime(2027, 3, 28, 1, tzinfo=UTC)),
    ("Europe/Berlin", datetime(2027, 10, 31, 1, tzinfo=UTC)),
    ("America/New_York", datetime(2027, 3, 14, 7, tzinfo=UTC)),
    ("America/New_York", datetime(2027, 11, 7, 6, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2027, 4, 3, 15, tzinfo=UTC)),
    ("Asia/Kathmandu", datetime(2027, 6, 1, tzinfo=UTC)),
    ("UTC", datetime(2028, 2, 29, tzinfo=UTC)),
]
CRONS = ["* * * * *", "*/7 * * * *", "30 * * * *", "15,45 1-3 * * *", "0 */6 * * *", "30 2 * * *", "0 9 * * *"]
RRULES = ["FREQ=DAILY", "FREQ=DAILY;BYHOUR=0,1,2,3,14", "FREQ=WEEKLY;BYDAY=SA,SU,MO;BYHOUR=1,2,3;BYMINUTE=0,30"]
OVERLAPS = [Overlap.SKIP, Overlap.ALLOW, Overlap.allow(max_running=2), Overlap.QUEUE, Overlap.CANCEL]
MISFIRES = [Misfire.SKIP, Misfire.RUN_ONCE, *(Misfire.run_all(max=n) for n in (1, 2, 5, 24))]
GRACES = [IN_TIME, 45 * SECOND, 5 * MINUTE, HOUR, 12 * HOUR, 3 * DAY]


@dataclass(frozen=True)
class Case:
    rule: Cron | Every | RRule
    begin: datetime
    healthy: int  # occurrences before the outage
    outage: timedelta
    misfire: Misfire
    grace: timedelta
    overlap: Overlap = Overlap.SKIP


def draw(rng: random.Random) -> Case:
    zone, change = rng.choice(PLACES)
    outage = timedelta(milliseconds=int(OUTAGE.total_seconds() * 1000 * rng.random() ** 2))
    begin = change - timedelta(milliseconds=rng.randrange(36 * 3_600_000))
    end = begin + rng.choice([1, 2, 3, 30]) * DAY if rng.random() < 0.2 else None
    rule: Cron | Every | RRule
    match rng.randrange(3):
        case 0:
            rule = Cron(rng.choice(CRONS), zone, end=end)
        case 1:
            anchor = begin - timedelta(milliseconds=rng.randrange(10**9))
            rule = Every(timedelta(seconds=rng.choice(INTERVALS_S)), anchor=anchor, end=end)
        case _:
            rule = RRule(rng.choice(RRULES), tz=zone, dtstart=(begin - DAY).replace(microsecond=0), end=end)
    if rule.next(begin) is None:  # its end comes first, which is refused
        return draw(rng)
    parts = rng.choice(MISFIRES), rng.choice(GRACES), rng.choice(OVERLAPS)
    return Case(rule, begin, rng.randrange(3), outage, *parts)


# -- the oracle


def times(rule: Cron | Every | RRule, after: datetime, until: datetime) -> list[datetime]:
    """All nominal times later than `after`, up to `until`."""
    found: list[datetime] = []
    while page := rule.preview(found[-1] if found else after, 500):
        found += [one for one in page if one <= until]
        if page[-1] > until:
            break
    return found


def promised(due: list[datetime], up: datetime, misfire: Misfire, grace: timedelta) -> list[datetime]:
    """Of those that are due at the end of an outage: those that are made."""
    if not due or up - due[0] <= IN_TIME:
        return due
    if misfire == Misfire.SKIP:
        return [due[-1]] if up - due[-1] <= IN_TIME else []
    young = [one for one in due if up - one <= grace]
    return young[-misfire.keep :]


# -- driving


class Drive:
    """A scheduler with one schedule, and what its handler saw."""

    def __init__(self, sched: Scheduler) -> None:
        self.sched = sched
        self.seen: list[datetime] = []
        self.ran_at: list[datetime] = []
        self.ids: list[str] = []

        @sched.job
        async def note(ctx: Context) -> None:
            self.seen.append(ctx.scheduled_at)
            self.ran_at.append(sched.clock.now())
            self.ids.append(ctx.job_id)

        self.call: Call[Any] = note()

    async def run_at(self, moment: datetime) -> None:
        self.sched.clock.set(moment)
        await self.sched.run_until_idle()

    async def settle(self, plan: Plan) -> None:
        """Second by second until nothing is owed any more."""
        for _ in range(LONGEST_S):
            view = await plan.view()
            if not view.waits_for and (view.next_at is None or view.next_at > self.sched.clock.now()):
                return
            await self.run_at(self.sched.clock.now() + SECOND)
        raise AssertionError(f"not caught up after {LONGEST_S} s: {view}")


async def run_case(case: Case, url: str) -> None:
    space = f"t{random_name(8)}"
    async with Scheduler(url, namespace=space, shards=2, clock=MovableClock(case.begin)) as sched:
        drive = Drive(sched)
        parts: Any = {"misfire": case.misfire, "grace": case.grace, "overlap": case.overlap}
        plan = await sched.schedule("s", drive.call, case.rule, **parts)
        expected = case.rule.preview(sched.clock.now(), case.healthy)
        for one in expected:
            await drive.run_at(one)
        down = sched.clock.now()
        up = down + case.outage
        due = times(case.rule, down, up)
        made = promised(due, up, case.misfire, case.grace)
        await drive.run_at(up)
        await drive.settle(plan)
        during = times(case.rule, up, sched.clock.now())
        after = case.rule.preview(sched.clock.now(), 2)
        for one in after:
            await drive.run_at(one)
        assert drive.seen == [*expected, *made, *during, *after]
        assert len(set(drive.ids)) == len(drive.ids)
        view = await plan.view()
        assert (view.made, view.missed, view.skipped) == (len(drive.seen), len(due) - len(made), 0)


@pytest.mark.parametrize("batch", range(BATCHES))
async def test_an_outage_leaves_what_its_policy_promises(batch: int) -> None:
    # Any rule, any policy, across the days on which clocks change.
    for index in range(batch, CASES, BATCHES):
        case = draw(random.Random(SEED + index))
        print(f"REDISCHED_OUTAGE_SEED={SEED} case {index}: {case}")
        await run_case(case, "memory://")


async def test_a_real_server_does_the_same(server_of: Callable[[str], ServerProcess]) -> None:
    # The in-memory server's Lua and sorted sets are not those of production.
    for index in range(CASES // 10):
        case = draw(random.Random(SEED + CASES + index))
        print(f"REDISCHED_OUTAGE_SEED={SEED} case {index} on valkey: {case}")
        await run_case(case, server_of("valkey").url)


# -- the table of a two-day outage

NOON = datetime(2027, 3, 1, 12, tzinfo=UTC)
HOURLY = Cron("0 * * * *")
SKIP, ONCE, ALL = Misfire.SKIP, Misfire.RUN_ONCE, Misfire.run_all
MS = timedelta(milliseconds=1)

# policy, grace, when it is up again after two days, the hours made; 48 were due in all
TABLE = [
    (SKIP, HOUR, 20 * MINUTE, 0),
    (SKIP, 3 * DAY, 20 * MINUTE, 0),
    (SKIP, HOUR, 10 * SECOND, 1),
    (SKIP, HOUR, 10 * SECOND + MS, 0),
    (ONCE, HOUR, 20 * MINUTE, 1),
    (ONCE, 20 * MINUTE, 20 * MINUTE, 1),
    (ONCE, 20 * MINUTE - MS, 20 * MINUTE, 0),
    (ONCE, 3 * DAY, 20 * MINUTE, 1),
    (ONCE, HOUR, timedelta(0), 1),
    (ALL(max=24), 20 * MINUTE - MS, 20 * MINUTE, 0),
    (ALL(max=24), HOUR, 20 * MINUTE, 1),
    (ALL(max=24), 3 * HOUR, 20 * MINUTE, 3),
    (ALL(max=24), 3 * HOUR, timedelta(0), 4),
    (ALL(max=24), 3 * HOUR - MS, timedelta(0), 3),
    (ALL(max=24), 3 * DAY, 20 * MINUTE, 24),
    (ALL(max=100), DAY, 20 * MINUTE, 24),
    (ALL(max=100), 3 * DAY, 20 * MINUTE, 48),
    (ALL(max=1), 3 * DAY, 20 * MINUTE, 1),
]


@pytest.mark.parametrize(("misfire", "grace", "late", "hours"), TABLE, ids=str)
async def test_two_days_of_an_hourly_schedule(misfire: Misfire, grace: timedelta, late: timedelta, hours: int) -> None:
    # Numbers written by hand: an oracle that shares a mistake with the code would not find it.
    async with Scheduler("memory://", shards=1, clock=MovableClock(NOON - MINUTE)) as sched:
        drive = Drive(sched)
        plan = await sched.schedule("s", drive.call, HOURLY, misfire=misfire, grace=grace)
        await drive.run_at(NOON)
        up = NOON + 2 * DAY + late
        await drive.run_at(up)
        await drive.settle(plan)
        assert drive.seen == [NOON, *(NOON + 2 * DAY - n * HOUR for n in reversed(range(hours)))]
        # One a second, the first at once; one that is in time waits for no turn.
        turns = hours - (hours > 0 and late <= IN_TIME)
        assert drive.ran_at[1 : turns + 1] == [up + n * SECOND for n in range(turns)]
        view = await plan.view()
        assert (view.made, view.missed, view.next_at) == (1 + hours, 48 - hours, NOON + 2 * DAY + HOUR)


@pytest.mark.parametrize("misfire", [ONCE, ALL(max=24)], ids=str)
async def test_a_second_outage_has_a_grace_of_its_own(misfire: Misfire) -> None:
    # Caught up yesterday, half an hour late; today eleven hours are past the grace of one.
    async with Scheduler("memory://", shards=1, clock=MovableClock(NOON - MINUTE)) as sched:
        drive = Drive(sched)
        plan = await sched.schedule("s", drive.call, Cron("0 12 * * *"), misfire=misfire)
        await drive.run_at(NOON + 30 * MINUTE)
        assert drive.seen == [NOON]
        await drive.run_at(NOON + DAY + 11 * HOUR)
        assert drive.seen == [NOON]
        assert (await plan.view()).missed == 1


@pytest.mark.parametrize("overlap", [Overlap.SKIP, Overlap.QUEUE, Overlap.allow(max_running=1)], ids=str)
async def test_a_catch_up_waits_for_the_one_that_lives(overlap: Overlap) -> None:
    # It may neither be skipped for it nor run beside it, nor grow too old while it waits.
    wait = 3 * HOUR + 10 * MINUTE
    slow = Retry(max_attempts=2, backoff="constant", base=wait, cap=wait, jitter=0)
    async with Scheduler("memory://", shards=1, clock=MovableClock(NOON - MINUTE)) as sched:
        seen: list[datetime] = []

        @sched.job(retry=slow)
        async def first_fails(ctx: Context) -> None:
            seen.append(ctx.scheduled_at)
            if len(seen) == 1:
                raise ValueError("tomorrow")

        parts: Any = {"misfire": ALL(max=24), "grace": 2 * HOUR + 5 * MINUTE, "overlap": overlap}
        plan = await sched.schedule("s", first_fails(), HOURLY, **parts)
        sched.clock.set(NOON)
        await sched.run_until_idle()
        sched.clock.set(NOON + 3 * HOUR + MINUTE)
        await sched.run_until_idle()
        view = await plan.view()
        assert (view.waits_for, view.skipped) == ("an occurrence before it still lives", 0)
        for _ in range(40):
            sched.clock.advance(15 * SECOND)
            await sched.run_until_idle()
        assert seen == [NOON, NOON, *(NOON + n * HOUR for n in range(1, 4))]
        view = await plan.view()
        assert (view.made, view.missed, view.skipped) == (4, 0, 0)


# -- overlap, in time


async def live(sched: Scheduler, rule: Cron | Every, overlap: Overlap, step: timedelta, steps: int) -> Plan:
    """A schedule whose runs fail and live on until tomorrow, looked at `steps` times."""
    slow = Retry(max_attempts=3, backoff="constant", base=DAY, cap=DAY, jitter=0)

    @sched.job(retry=slow)
    async def lives() -> None:
        raise ValueError("again tomorrow")

    plan = await sched.schedule("s", lives(), rule, overlap=overlap)
    for _ in range(steps):
        sched.clock.advance(step)
        await sched.run_until_idle()
    return plan


@pytest.mark.parametrize(
    ("overlap", "made", "skipped", "living"),
    [(Overlap.SKIP, 1, 3, 1), (Overlap.ALLOW, 4, 0, None), (OVERLAPS[2], 2, 2, 2), (Overlap.CANCEL, 4, 0, 1)],
    ids=str,
)
async def test_overlap(overlap: Overlap, made: int, skipped: int, living: int | None) -> None:
    # A job that is to be tried again lives as well as one that runs.
    async with Scheduler("memory://", clock=MovableClock(NOON)) as sched:
        plan = await live(sched, HOURLY, overlap, HOUR, 4)
        view = await plan.view()
        assert (view.made, view.skipped, view.missed) == (made, skipped, 0)
        assert living is None or len(view.living) == living
        outcomes = [run.outcome for run in await plan.runs()]
        assert outcomes.count(Outcome.SKIPPED) == skipped
        assert outcomes.count(Outcome.CANCELLED) == (3 if overlap == Overlap.CANCEL else 0)


async def test_queue_counts_each_that_is_left_out_once() -> None:
    # One lives, one waits, four are left out; looked at every minute meanwhile.
    async with Scheduler("memory://", clock=MovableClock(NOON)) as sched:
        plan = await live(sched, Cron("* * * * *"), Overlap.QUEUE, MINUTE, 6)
        assert await sched.get_job((await plan.view()).living[0]).cancel()
        await sched.run_until_idle()
        view = await plan.view()
        assert (view.made, view.skipped, view.missed) == (2, 4, 0)


@pytest.mark.parametrize("overlap", [Overlap.SKIP, Overlap.QUEUE, Overlap.ALLOW], ids=str)
async def test_from_completion_there_is_no_next_time_before_the_end(overlap: Overlap) -> None:
    # Its run lives for days: whatever may overlap, no other one starts.
    async with Scheduler("memory://", clock=MovableClock(NOON)) as sched:
        plan = await live(sched, Every(MINUTE, after="completion"), overlap, MINUTE, 6)
        view = await plan.view()
        assert (view.made, view.skipped, view.waits_for) == (1, 0, "the end of its run")


async def test_the_grace_holds_at_resume_after_a_catch_up() -> None:
    # Caught up once, then paused for two days: what is older than the grace is missed.
    async with Scheduler("memory://", shards=1, clock=MovableClock(NOON - MINUTE)) as sched:
        drive = Drive(sched)
        plan = await sched.schedule("s", drive.call, HOURLY, misfire=ALL(max=99))
        await drive.run_at(NOON + MINUTE)
        await plan.pause()
        sched.clock.advance(2 * DAY)
        await plan.resume()
        await sched.run_until_idle()
        await drive.settle(plan)
        assert drive.seen == [NOON, NOON + 2 * DAY]
        assert (await plan.view()).missed == 47


async def test_from_completion_the_end_of_a_triggered_run_is_not_the_end() -> None:
    # The scheduled run still lives: its next time must not be counted from the other's end.
    async with Scheduler("memory://", clock=MovableClock(NOON)) as sched:

        @sched.job(retry=Retry(max_attempts=3, backoff="constant", base=DAY, cap=DAY, jitter=0))
        async def work(ctx: Context) -> None:
            if "!" not in ctx.job_id:
                raise ValueError("again tomorrow")

        plan = await sched.schedule("s", work(), Every(MINUTE, after="completion"))
        sched.clock.advance(MINUTE)
        await sched.run_until_idle()
        await plan.trigger()
        await sched.run_until_idle()
        view = await plan.view()
        assert (view.waits_for, view.next_at) == ("the end of its run", None)
