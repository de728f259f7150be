"""The sweep: tries to break a schedule in a way that nobody finds, and to have a healthy one put "right"."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from redisched import Context, Cron, Every, Misfire, MovableClock, Overlap, Plan, Retry, Scheduler, codec
from redisched.plan import decode_plan, encode_plan
from redisched.scheduler.sweeper import Sweeper
from redisched.settings import SchedulerSettings

pytestmark = pytest.mark.anyio

NOON = datetime(2027, 3, 1, 12, tzinfo=UTC)
SECOND, MINUTE, HOUR, DAY = (timedelta(seconds=n) for n in (1, 60, 3_600, 86_400))
HOURLY = Cron("0 * * * *")
NAME = "default/s"


class World:
    """A scheduler with one shard, its keys and its sweeper."""

    def __init__(self, sched: Scheduler) -> None:
        self.sched = sched
        self.keys = sched.store.keys.shards[0]
        self.client = sched.store.client
        self.sweeper = Sweeper(sched.store, SchedulerSettings())
        self.seen: list[datetime] = []

        @sched.job
        async def note(ctx: Context) -> None:
            self.seen.append(ctx.scheduled_at)

        @sched.job(retry=Retry(max_attempts=3, backoff="constant", base=DAY, cap=DAY, jitter=0))
        async def lives() -> None:
            raise ValueError("again tomorrow")

        self.note, self.lives = note, lives

    async def state(self, name: str = NAME) -> list[str]:
        return str((await self.client.hget(self.keys["planned"], name)).decode()).split(" ")

    async def write(self, place: int, word: object) -> None:
        """Changes one word of the state: 1 is the cursor, 2 the mode."""
        words = await self.state()
        words[place] = str(word)
        await self.client.hset(self.keys["planned"], NAME, " ".join(words))

    async def score(self, moment: datetime | float) -> None:
        at = moment.timestamp() * 1000 if isinstance(moment, datetime) else moment
        await self.client.zadd(self.keys["plans"], {NAME: at})


@pytest.fixture
async def world() -> Any:
    async with Scheduler("memory://", shards=1, clock=MovableClock(NOON + 30 * MINUTE)) as sched:
        yield World(sched)


async def break_it(world: World, flaw: str) -> None:
    match flaw:
        case "no member":
            await world.client.zrem(world.keys["plans"], NAME)
        case "no state":
            await world.client.hdel(world.keys["planned"], NAME)
        case "garbage":
            await world.client.hset(world.keys["planned"], NAME, b"\xff\x00 what is this")
        case "a word too few":
            await world.client.hset(world.keys["planned"], NAME, "1 5 - 0 0 0 0 100 5")
        case "unknown mode":
            await world.write(2, "z")
        case "misfit":
            await world.write(1, int((NOON + HOUR + 7 * MINUTE).timestamp() * 1000))
        case "far misfit":
            await world.write(1, 10**17)
        case "late look":
            await world.score(NOON + 300 * DAY)
        case "endless look":
            await world.score(float("inf"))
        case "negative cursor":
            await world.write(1, -5)


FLAWS = ["no member", "no state", "garbage", "a word too few", "unknown mode", "misfit", "far misfit", "late look"]


@pytest.mark.parametrize("flaw", [*FLAWS, "endless look", "negative cursor"])
async def test_a_flaw_is_found_healed_and_told(world: World, flaw: str, caplog: pytest.LogCaptureFixture) -> None:
    # Each of them would be a schedule that never fires again, and nobody would miss it.
    plan = await world.sched.schedule("s", world.note(), HOURLY)
    await world.sched.schedule("healthy", world.note(), Cron("0 0 1 1 *"))
    before = await world.state("default/healthy")
    await break_it(world, flaw)
    with caplog.at_level(logging.WARNING, "redisched.scheduler"):
        assert await world.sweeper.sweep(0) == 1
    told = [record for record in caplog.records if record.message == "schedule is broken"]
    assert [record.__dict__["schedule"] for record in told] == [NAME]
    assert "schedules were put right" in caplog.text
    assert await world.sweeper.sweep(0) == 0
    view = await plan.view()
    assert (view.state, view.next_at, view.looks_at) == ("active", NOON + HOUR, NOON + HOUR)
    assert await world.state("default/healthy") == before
    for n in (1, 2):
        world.sched.clock.set(NOON + n * HOUR)
        await world.sched.run_until_idle()
    assert world.seen == [NOON + HOUR, NOON + 2 * HOUR]
    assert (await world.client.hget(world.keys["totals"], "healed")) == b"1"


async def test_a_lost_member_of_a_late_schedule_is_caught_up(world: World) -> None:
    # Healed hours later: what was missed meanwhile follows its policy and is counted.
    plan = await world.sched.schedule("s", world.note(), HOURLY)
    await break_it(world, "no member")
    world.sched.clock.advance(5 * HOUR)
    await world.sched.run_until_idle()
    assert world.seen == []
    assert await world.sweeper.sweep(0) == 1
    await world.sched.run_until_idle()
    assert (world.seen, (await plan.view()).missed) == ([NOON + 5 * HOUR], 4)


async def test_a_misfit_of_a_rule_that_has_no_time_left_ends_it(world: World) -> None:
    # There is nothing to heal it to, and it must not be found again and again.
    plan = await world.sched.schedule("s", world.note(), Cron("0 * * * *", end=NOON + HOUR))
    world.sched.clock.set(NOON + HOUR + MINUTE)
    await world.write(1, int((NOON + 9 * HOUR).timestamp() * 1000))
    assert await world.sweeper.sweep(0) == 1
    assert (await plan.view()).state == "ended"
    assert await world.sweeper.sweep(0) == 0


async def healthy(world: World, mode: str) -> Plan:
    """A schedule in that mode, by what happens to it, not by hand."""
    sched = world.sched
    rule: Cron | Every = Every(MINUTE, after="completion") if mode in "cd" else Cron("* * * * *", max_runs=None)
    if mode == "e":
        rule = Cron("* * * * *", max_runs=1)
    overlap = Overlap.QUEUE if mode == "w" else Overlap.SKIP
    call = world.lives() if mode in "wc" else world.note()
    parts: Any = {"misfire": Misfire.run_all(max=100), "overlap": overlap, "jitter": timedelta(0)}
    plan = await sched.schedule("s", call, rule, **parts)
    if mode == "p":
        await plan.pause()
        sched.clock.advance(HOUR)
    elif mode == "g":
        sched.clock.advance(20 * MINUTE + 30 * SECOND)
        await sched.run_until_idle()
    elif mode == "d":
        await world.write(2, "d")
    elif mode != "-":
        for _ in range(3):
            sched.clock.advance(MINUTE)
            await sched.run_until_idle()
    assert (await world.state())[2] == mode
    return plan


@pytest.mark.parametrize("later", [timedelta(0), SECOND], ids=["now", "a second later"])
@pytest.mark.parametrize("mode", ["-", "p", "e", "w", "g", "c", "d"])
async def test_healthy_schedules_are_left_alone(world: World, mode: str, later: timedelta) -> None:
    # Paused, ended, held, in turn, running: each looks odd to somebody who knows only one of them.
    await healthy(world, mode)
    world.sched.clock.advance(later)
    before = await world.state(), await world.client.zscore(world.keys["plans"], NAME)
    assert await world.sweeper.sweep(0) == 0
    assert (await world.state(), await world.client.zscore(world.keys["plans"], NAME)) == before


@pytest.mark.parametrize("late", [timedelta(0), 5 * SECOND, 2 * DAY], ids=["due", "late", "outage"])
async def test_a_schedule_that_is_only_late_is_left_alone(world: World, late: timedelta) -> None:
    # No ticker ran: that is an outage, not a flaw; a sweep that moves the cursor would lose what is owed.
    await world.sched.schedule("s", world.note(), HOURLY, jitter=20 * MINUTE)
    world.sched.clock.set(NOON + HOUR + late)
    assert await world.sweeper.sweep(0) == 0


UNREADABLE = ["bytes", "shape", "rule", "zone", "misfire", "overlap"]


def spoil(packed: bytes, how: str) -> bytes:
    body = decode_plan(packed)
    gone = codec.raw(codec.encode({"kind": "cron", "expr": "0 * * * *", "tz": "Europe/Atlantis"}))
    parts: dict[str, dict[str, Any]] = {
        "rule": {"rule": codec.raw(codec.encode([1, 2]))},
        "zone": {"rule": gone},
        "misfire": {"misfire": "maybe"},
        "overlap": {"overlap": "allow:999"},
        "priority": {"priority": "urgent"},
        "tenant": {"tenant": ""},
    }
    if how in parts:
        return encode_plan(msgspec.structs.replace(body, **parts[how]))
    return b"\xc1\xff" if how == "bytes" else codec.encode(["s", 5])


@pytest.mark.parametrize("how", [*UNREADABLE, *(one for one in ("priority", "tenant"))], ids=str)
async def test_an_unreadable_body_is_told_and_stops_nobody(
    world: World, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    # A newer version wrote it, or a zone went: the schedules beside it fire, and the listing shows it as broken.
    sched, keys = world.sched, world.keys
    await sched.schedule("s", world.note(), HOURLY)
    other = await sched.schedule("other", world.note(), HOURLY)
    packed = await world.client.hget(keys["plan"], NAME)
    await world.client.hset(keys["plan"], NAME, spoil(packed, how))
    sched.clock.set(NOON + HOUR)
    with caplog.at_level(logging.WARNING, "redisched.scheduler"):
        await sched.run_until_idle()
        await world.client.zrem(keys["plans"], "default/other")
        assert await world.sweeper.sweep(0) == 1
    assert (world.seen, (await other.view()).made) == ([NOON + HOUR], 1)
    assert "schedule cannot be read" in caplog.text
    broken = [r.__dict__["schedule"] for r in caplog.records if "cannot be read" in r.__dict__.get("why", "")]
    assert broken == [NAME]
    assert {view.name: view.state for view in await sched.plans()} == {"other": "active", "s": "broken"}
    await sched.schedule("s", world.note(), HOURLY)
    assert (await sched.get_plan("s").view()).state == "active"


async def test_it_walks_once_in_a_while_and_again_for_other_zones(world: World) -> None:
    # Ten schedulers must not walk a million schedules each; new zone data must not wait.
    await world.sched.schedule("s", world.note(), HOURLY)
    await break_it(world, "no member")
    assert await world.sweeper.run_once() == 1
    await break_it(world, "no member")
    assert await world.sweeper.run_once() == 0
    await world.client.set(world.keys["swept"], "1999a")
    assert await world.sweeper.run_once() == 1
