"""The ticker and what is declared: one that is broken or refused must not hold up the others."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from redisched import Context, Cron, Every, InvalidSchedule, Misfire, MovableClock, Overlap, Scheduler
from redisched.plan import decode_plan, encode_plan
from redisched.scheduler import Sweeper, Ticker
from redisched.settings import SchedulerSettings

pytestmark = pytest.mark.anyio
NOON = datetime(2027, 6, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture
async def sched() -> Any:
    async with Scheduler("memory://", shards=1, clock=MovableClock(NOON)) as opened:
        yield opened


async def test_one_that_cannot_be_made_does_not_stop_its_neighbours(
    sched: Scheduler, caplog: pytest.LogCaptureFixture
) -> None:
    # A template of a newer version, and a name that is no text: both first in line, for ever.
    seen: list[str] = []

    @sched.job
    async def note(ctx: Context) -> None:
        seen.append(ctx.job_id)

    await sched.schedule("good", note(), Every(HOUR))
    await sched.schedule("newer", note(), Every(HOUR), idempotency_key="{date}-{hour}")
    keys, client = sched.store.keys.shards[0], sched.store.client
    body = decode_plan(await client.hget(keys["plan"], "default/newer"))
    await client.hset(keys["plan"], "default/newer", encode_plan(msgspec.structs.replace(body, key="{region}")))
    await client.zadd(keys["plans"], {b"\xff\xfe": 1})
    sched.clock.advance(HOUR)
    await sched.run_until_idle()
    assert [one.partition("@")[0] for one in seen] == ["good"]
    assert await client.zscore(keys["plans"], b"\xff\xfe") is None, "nothing is behind that name"
    await Sweeper(sched.store, SchedulerSettings()).sweep(0)
    assert any(
        getattr(r, "schedule", "") == "default/newer" and "region" in r.why for r in caplog.records if hasattr(r, "why")
    )


async def test_computing_yields_to_what_else_runs_on_the_loop(
    sched: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Thousands of missed times in hundreds of schedules: leases are renewed on the same loop.
    @sched.job
    async def note() -> None: ...

    for n in range(40):
        rule = Cron(f"{n} * * * * *", seconds=True)
        await sched.schedule(f"s{n:02}", note(), rule, misfire=Misfire.SKIP, grace=timedelta(0))
    sched.clock.advance(timedelta(days=2))
    ticker = Ticker(sched.store, 0, SchedulerSettings())
    monkeypatch.setattr("redisched.scheduler.ticker.LONGEST_S", 0.0)
    looks = 0
    while await ticker.run_once():
        looks += 1
    assert looks >= 40, "at most one schedule a look, when there is no time"
    assert sum(view.missed + view.made for view in await sched.plans()) == 40 * 2 * 24 * 60


async def test_one_refused_declaration_keeps_no_other_from_its_place(sched: Scheduler) -> None:
    # Its end came, and the code still declares it.
    over = Cron("0 0 * * *", end=NOON - HOUR)

    @sched.recurring(over, name="over")
    async def first() -> None: ...

    @sched.every(HOUR)
    async def second() -> None: ...

    placed = await sched.put_schedules("app:sched")
    assert (placed.changed, [name for name, _ in placed.refused]) == (("second",), ["over"])
    assert [view.name for view in await sched.plans()] == ["second"]


async def test_keys_that_meet_when_the_clocks_go_back_are_refused_in_summer(sched: Scheduler) -> None:
    # In June nobody sees it; in November one o'clock comes twice.
    @sched.job
    async def note() -> None: ...

    hourly = Cron("0 * * * *", tz="America/New_York")
    with pytest.raises(InvalidSchedule, match="offset"):
        await sched.schedule("s", note(), hourly, idempotency_key="r-{hour}")
    assert await sched.plans() == []
    await sched.schedule("s", note(), hourly, idempotency_key="r-{hour}{offset}")
    sched.clock.set(datetime(2027, 11, 6, tzinfo=UTC))
    plan = await sched.schedule("s", note(), hourly, idempotency_key="r-{hour}{offset}")
    assert plan.version == 1


async def test_a_catch_up_comes_back_to_time_though_its_runs_are_long(sched: Scheduler) -> None:
    # Minutely, each run takes longer than a minute: later with every run, if none were left out.
    clock = sched.clock
    waiting: list[str] = []

    @sched.job
    async def long(ctx: Context) -> None:
        waiting.append(ctx.job_id)

    plan = await sched.schedule("s", long(), Every(timedelta(minutes=1)), misfire=Misfire.run_all(max=20))
    clock.advance(timedelta(minutes=10))
    # A run lives until we say so: it is claimed by nobody while the ticker looks on.
    ticker = Ticker(sched.store, 0, SchedulerSettings())
    for _ in range(60):
        while await ticker.run_once():
            pass
        clock.advance(45)
        while await ticker.run_once():
            pass
        clock.advance(45)
        await sched.run_until_idle()
    view = await plan.view()
    assert view.next_at is not None
    assert clock.now() - view.next_at < timedelta(minutes=4)
    assert view.skipped > 20


async def test_the_sweep_sees_backfills_and_clocks_that_jumped(sched: Scheduler) -> None:
    # One that stands still for ever, and one whose next time is a year ahead though it fits the rule.
    @sched.job
    async def note() -> None: ...

    plan = await sched.schedule("s", note(), Cron("0 * * * *"), overlap=Overlap.ALLOW)
    await plan.backfill(NOON - 5 * HOUR, NOON - HOUR)
    keys, client = sched.store.keys.shards[0], sched.store.client
    await client.zrem(keys["plans"], "default/s!")
    state = (await client.hget(keys["planned"], "default/s")).decode().split(" ")
    state[1] = str(int(state[1]) + 365 * 86_400_000)
    await client.hset(keys["planned"], "default/s", " ".join(state))
    assert await Sweeper(sched.store, SchedulerSettings()).sweep(0) == 2
    assert (await plan.view()).next_at == NOON + HOUR
    for _ in range(12):
        await sched.run_until_idle()
        sched.clock.advance(1)
    assert len(await plan.runs()) == 5
