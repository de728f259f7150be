"""Schedules declared in code, and what a declaration may say: tries to lose one, to store a wrong one, or to remove
somebody else's."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from redisched import (
    Call,
    ConfigError,
    Context,
    Cron,
    Every,
    InvalidCall,
    InvalidSchedule,
    MovableClock,
    QuotaExceeded,
    RedischedError,
    Retry,
    RRule,
    Scheduler,
)

pytestmark = pytest.mark.anyio

SECOND, MINUTE, HOUR, DAY = (timedelta(seconds=n) for n in (1, 60, 3_600, 86_400))
NOON = datetime(2027, 3, 1, 12, tzinfo=UTC)
DAILY = Cron("0 9 * * *")
NOTHING: Call[Any] = Call("nothing")


# -- declaring


async def test_the_three_ways_to_declare(sched: Scheduler) -> None:
    # Each puts the schedule in place under the job's name, and the job stays callable.
    @sched.cron("0 9 * * 1", tz="America/New_York", grace=DAY)
    async def weekly() -> None: ...

    @sched.every(timedelta(minutes=10), tenant="acme")
    def often() -> None: ...

    @sched.recurring(RRule("FREQ=DAILY"), name="other-name")
    async def daily(ctx: Context, what: str = "x") -> None: ...

    placed = await sched.put_schedules("app")
    assert (sorted(placed.changed), placed.unchanged, placed.undeclared) == (["often", "other-name", "weekly"], (), ())
    views = {view.name: view for view in await sched.plans()}
    assert {name: view.rule["kind"] for name, view in views.items()} == {
        "weekly": "cron",
        "often": "every",
        "other-name": "rrule",
    }
    assert (views["weekly"].rule["tz"], views["weekly"].grace, views["often"].tenant) == (
        "America/New_York",
        DAY,
        "acme",
    )
    assert (views["other-name"].call, views["weekly"].origin) == ("daily", "app")
    assert daily("y").name == "daily"


async def test_a_declared_one_runs_in_a_test_without_more(sched: Scheduler) -> None:
    # run_until_idle puts it in place, as a worker does at its start.
    seen: list[str] = []

    @sched.every(MINUTE)
    @sched.job(name="ticks", retry=Retry(max_attempts=2))
    async def tick(ctx: Context) -> None:
        seen.append(ctx.job_id)

    await sched.run_until_idle()
    sched.clock.advance(MINUTE)
    assert await sched.run_until_idle() == 1
    assert seen[0].startswith("ticks@")
    body, _ = await sched.book._find("ticks", "default")
    assert body.max_attempts == 2


async def test_a_job_that_needs_arguments_is_refused(sched: Scheduler) -> None:
    # At the declaration: at three in the morning it is too late.
    def needy(who: str) -> None: ...

    for declare in (sched.cron("0 9 * * *"), sched.every(HOUR)):
        with pytest.raises(ConfigError, match="must need no arguments"):
            declare(needy)
    assert (await sched.put_schedules()).changed == ()


async def test_two_jobs_cannot_share_a_schedules_name(sched: Scheduler) -> None:
    # The second would silently replace the first; with another tenant it is another schedule.
    @sched.every(HOUR, name="same")
    def one() -> None: ...

    with pytest.raises(ConfigError, match="two schedules are named 'same'"):

        @sched.every(HOUR, name="same")
        def two() -> None: ...

    sched.every(HOUR, name="same", tenant="acme")(one)
    assert len((await sched.put_schedules()).changed) == 2


async def test_two_schedules_over_one_job_are_both_there_or_refused(sched: Scheduler) -> None:
    # At nine and at five: two decorators on one function are easily written.
    try:

        @sched.cron("0 9 * * *")
        @sched.cron("0 17 * * *")
        def report() -> None: ...
    except ConfigError:
        return
    await sched.put_schedules()
    assert len(await sched.plans()) == 2


# -- putting in place


async def test_putting_twice_changes_nothing_and_a_pause_stays(sched: Scheduler) -> None:
    # Every worker does so at every start; an interval must not begin anew.
    sched.every(HOUR)(_nothing)
    await sched.put_schedules("app")
    plan = sched.get_plan("_nothing")
    before = await plan.view()
    sched.clock.advance(MINUTE)
    placed = await sched.put_schedules("app")
    assert (placed.changed, placed.unchanged, await plan.view()) == ((), ("_nothing",), before)
    await plan.pause("by hand")
    assert (await sched.put_schedules("app")).unchanged == ("_nothing",)
    sched.every(MINUTE)(_nothing)
    assert (await sched.put_schedules("app")).changed == ("_nothing",)
    view = await plan.view()
    assert (view.state, view.note) == ("paused", "by hand")


def _nothing() -> None: ...


async def test_what_is_declared_no_more_is_told_and_removed_only_by_prune(
    sched: Scheduler, caplog: pytest.LogCaptureFixture
) -> None:
    # A rollback, or a worker with half the code, must not delete; what was made by hand is nobody's to prune.
    await sched.schedule("by-hand", NOTHING, DAILY)
    sched.every(HOUR, tenant="acme")(_nothing)
    sched.cron("0 9 * * *", name="stays")(_nothing)
    await sched.put_schedules("app")
    del sched._declared["acme", "_nothing"]
    for _ in range(2):
        with caplog.at_level(logging.WARNING, "redisched.client"):
            placed = await sched.put_schedules("app")
        assert placed.undeclared == (("acme", "_nothing"),)
    assert "declares this schedule no more" in caplog.text
    assert (await sched.put_schedules("other-app")).undeclared == ()
    assert len(await sched.plans()) == 3
    assert await sched.prune_schedules("app") == [("acme", "_nothing")]
    assert sorted(view.name for view in await sched.plans()) == ["by-hand", "stays"]
    assert (await sched.put_schedules("app")).undeclared == ()


async def test_prune_leaves_what_another_application_took_over(sched: Scheduler) -> None:
    # It moved from one service to another: the old one's clean-up must not stop it.
    sched.every(HOUR)(_nothing)
    await sched.put_schedules("old")
    await sched.put_schedules("new")
    assert (await sched.get_plan("_nothing").view()).origin == "new"
    sched._declared.clear()
    await sched.prune_schedules("old")
    assert [view.name for view in await sched.plans()] == ["_nothing"]


# -- quota, pages, tenants


@pytest.mark.parametrize("tenant", ["default", "acme"])
async def test_the_quota_of_a_tenant(tenant: str) -> None:
    # The default tenant is spread over all shards: each of them must not allow as many.
    async with Scheduler("memory://", shards=8, max_schedules=5) as sched:
        for n in range(5):
            await sched.schedule(f"s{n}", NOTHING, DAILY, tenant=tenant)
        for n in range(5, 15):
            with pytest.raises(QuotaExceeded, match="max_schedules"):
                await sched.schedule(f"s{n}", NOTHING, DAILY, tenant=tenant)
        await sched.schedule("s3", NOTHING, Every(HOUR), tenant=tenant)
        await sched.schedule("s9", NOTHING, DAILY, tenant="another")
        assert await sched.get_plan("s0", tenant).delete()
        await sched.schedule("s9", NOTHING, DAILY, tenant=tenant)
        assert [v.name for v in await sched.plans(tenant)] == ["s1", "s2", "s3", "s4", "s9"]


async def test_pages_of_a_tenant_and_of_all() -> None:
    # Over shards, in one order, none twice and none left out; a tenant's name that begins another's is not it.
    async with Scheduler("memory://", shards=4) as sched:
        names = [f"s{n:02}" for n in range(11)]
        for tenant in ("default", "acme", "acme0", "acm"):
            for name in names:
                await sched.schedule(name, NOTHING, DAILY, tenant=tenant)
        for tenant in ("default", "acme"):
            after, found = "", []
            while page := await sched.plans(tenant, after=after, limit=4):
                found += [(view.tenant, view.name) for view in page]
                after = page[-1].name
            assert found == [(tenant, name) for name in names]
        after, found = "", []
        while page := await sched.plans(after=after, limit=7):
            found += [(view.tenant, view.name) for view in page]
            after = page[-1].cursor
        assert found == [(tenant, name) for tenant in ("acm", "acme", "acme0", "default") for name in names]


ODD = ["ü", " a/b", "日本" * 64, "x" * 128, "%", "a@b#c{d}!", "\U0001f600" * 128]


async def test_pages_over_all_with_odd_tenants(sched: Scheduler) -> None:
    # A cursor is opaque, and goes through any tenant's name: it must neither stop early nor go in a circle.
    for tenant in ODD:
        await sched.schedule("s", NOTHING, DAILY, tenant=tenant)
    after, found = "", []
    for _ in range(2 * len(ODD)):
        page = await sched.plans(after=after, limit=1)
        if not page:
            break
        found += [view.tenant for view in page]
        after = page[-1].cursor
    assert sorted(found) == sorted(ODD)


async def test_odd_tenants_have_short_ids_and_stay_apart(sched: Scheduler) -> None:
    # A lease's member has little room, and two long names must not be cut to the same.
    seen: list[tuple[str, str]] = []

    @sched.job
    async def note(ctx: Context) -> None:
        seen.append((ctx.tenant, ctx.job_id))

    tenants = [*ODD, "x" * 127 + "y"]
    for tenant in tenants:
        await sched.schedule("s" * 128, note(), Every(MINUTE), tenant=tenant)
    sched.clock.advance(MINUTE)
    assert await sched.run_until_idle() == len(tenants)
    assert sorted(tenant for tenant, _ in seen) == sorted(tenants)
    assert len({job_id for _, job_id in seen}) == len(tenants)
    assert max(len(job_id) for _, job_id in seen) <= 64 + 1 + 128 + 14
    for tenant in tenants:
        (view,) = await sched.plans(tenant)
        (run,) = await sched.get_plan("s" * 128, tenant).runs()
        assert (view.tenant, view.made, (tenant, run.job_id) in seen) == (tenant, 1, True)


# -- templates


@pytest.mark.parametrize(
    ("template", "key"),
    [
        ("{year}/{date}", "2027/2027-03-02"),
        ("{quarter}/{day}", "2027-Q1/2027-03-02"),
        ("{month}/{timestamp}", "2027-03/1803915000000"),
        ("{week}-{weekday}", "2027-W09-tue"),
        ("{hour}", "2027-03-02T00"),
        ("{minute} {offset}", "2027-03-02T00:35 +0545"),
        ("{second}", "2027-03-02T00:35:00"),
        ("{time} on {date}", "00:35 on 2027-03-02"),
        ("{{{tenant}}}:{schedule}:{date}", "{a/b}:s:2027-03-02"),
    ],
)
async def test_each_field_of_a_template(template: str, key: str) -> None:
    # In the schedule's own zone: there it is the next day already.
    async with Scheduler("memory://", clock=MovableClock(NOON)) as sched:
        keys: list[str] = []

        @sched.job
        async def note(ctx: Context) -> None:
            keys.append(ctx.idempotency_key)

        rule = Cron("35 0 * * *", "Asia/Kathmandu")
        await sched.schedule("s", note(), rule, tenant="a/b", idempotency_key=template)
        sched.clock.set(datetime(2027, 3, 1, 18, 50, tzinfo=UTC))
        assert await sched.run_until_idle() == 1
        assert keys == [key.replace("1803915000000", str(sched.clock.now_ms()))]


WRONG_FIELDS: list[Any] = [
    "",
    "{}",
    "{0}",
    "{nope}",
    "{date!r}",
    "{date:%Y}",
    "{date",
    "}",
    "{date.year}",
    "x" * 513,
    5,
]
SAME_KEYS = ["always", "{weekday}", "{time}", "{month}", "{tenant}-{schedule}"]


@pytest.mark.parametrize(
    "template",
    [*WRONG_FIELDS, *SAME_KEYS, "\ud800{date}"],
    ids=ascii,
)
async def test_templates_that_are_refused(sched: Scheduler, template: Any) -> None:
    # Unknown fields, and those that give two days the same key: whoever trusts it would run one of them only.
    with pytest.raises(InvalidSchedule, match="idempotency_key"):
        await sched.schedule("s", NOTHING, DAILY, idempotency_key=template)
    assert await sched.plans() == []


async def test_a_key_for_a_single_run_needs_no_field(sched: Scheduler) -> None:
    # There are no two occurrences that it could mix up.
    await sched.schedule("s", NOTHING, Cron("0 9 * * *", max_runs=1), idempotency_key="launch")


# -- bad input


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: {"rule": Cron("0 9 * * *", "Mars/Phobos")}, "Mars/Phobos"),
        (lambda: {"rule": Cron("61 * * * *")}, "61"),
        (lambda: {"rule": Cron("0 0 30 2 *")}, "never"),
        (lambda: {"rule": Cron("0 9 * * *", start=NOON, end=NOON - DAY)}, "before the start"),
        (lambda: {"rule": Cron("0 9 * * *", end=datetime(2020, 1, 1, tzinfo=UTC))}, "never fires after"),
        (lambda: {"rule": "0 9 * * *"}, "give a Cron"),
        (lambda: {"name": "a/b"}, "name"),
        (lambda: {"name": ""}, "name"),
        (lambda: {"tenant": ""}, "tenant"),
        (lambda: {"tenant": "t" * 129}, "tenant"),
        (lambda: {"tenant": "\ud800"}, "tenant"),
        (lambda: {"call": "nothing"}, "send_email"),
        (lambda: {"misfire": "skip"}, "misfire"),
        (lambda: {"overlap": "skip"}, "overlap"),
        (lambda: {"grace": -SECOND}, "grace"),
        (lambda: {"grace": 5}, "grace"),
        (lambda: {"jitter": 3_661 * DAY}, "jitter"),
        (lambda: {"rule": Every(HOUR, after="completion"), "jitter": SECOND}, "jitter"),
        (lambda: {"priority": "urgent"}, "priority"),
    ],
)
async def test_wrong_input_is_named_and_nothing_is_stored(sched: Scheduler, make: Any, named: str) -> None:
    # Validate first, write after.
    with pytest.raises((InvalidSchedule, InvalidCall, ConfigError), match=named) as caught:
        await sched.schedule(**({"name": "s", "call": NOTHING, "rule": DAILY} | make()))
    assert isinstance(caught.value, RedischedError)
    assert await sched.plans() == []
    assert (await sched.stats()).schedules == 0
