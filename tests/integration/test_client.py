"""The enqueueing side on every server: what is stored, what is refused, what a lost reply does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio as aioredis

from redisched import (
    Call,
    ConfigError,
    InvalidCall,
    LayoutMismatch,
    NotDurable,
    PayloadTooLarge,
    Scheduler,
    State,
    StoreFull,
    StoreUnavailable,
)
from redisched.ids import random_name
from tests.support.invariants import check_invariants, namespace_keys
from tests.support.proxy import CuttingProxy
from tests.support.servers import ServerProcess, available_kinds, start_server

pytestmark = pytest.mark.anyio


def declare(sched: Scheduler) -> Any:
    @sched.job
    async def greet(name: str, times: int = 1) -> str:
        return name * times

    return greet


@pytest.fixture
async def sched(kind: str, server_of: Callable[[str], ServerProcess]) -> AsyncIterator[Scheduler]:
    url = "memory://" if kind == "fake" else server_of(kind).url
    async with Scheduler(url, namespace=f"c{random_name(8)}", shards=3) as opened:
        yield opened
        found = await check_invariants(opened.store)
        for key in await namespace_keys(opened.store):
            await opened.store.client.delete(key)
        assert not found, "\n".join(["invariants broken:", *found])


async def test_now_later_and_at_a_time(sched: Scheduler) -> None:
    # a job in the wrong place, or due at another time than was asked for
    greet = declare(sched)
    now = await sched.enqueue(greet("now"))
    later = await sched.enqueue(greet("later"), delay=timedelta(minutes=5), tenant="acme")
    at = datetime(2031, 5, 17, 9, 30, tzinfo=UTC)
    dated = await sched.enqueue(greet("dated"), at=at)
    past = await sched.enqueue(greet("past"), at=datetime(2020, 1, 1, tzinfo=UTC), tenant="late")
    assert [await job.status() for job in (now, later, dated, past)] == ["ready", "waiting", "waiting", "ready"]
    view = await dated.view()
    assert (view.run_at, view.scheduled_at, view.name, view.args) == (at, at, "greet", {"name": "dated"})
    redis_now = await sched.inspector.now_ms()
    run_at = (await later.view()).run_at
    assert run_at is not None
    assert 295_000 < run_at.timestamp() * 1000 - redis_now <= 300_000


async def test_a_key_gives_the_same_job_while_it_lives(sched: Scheduler) -> None:
    # two jobs under one key, one job for two tenants' keys, a key that stays taken after its job
    greet = declare(sched)
    first = await sched.enqueue(greet("a"), key="welcome-42", delay=60)
    second = await sched.enqueue(greet("b"), key="welcome-42", priority="high")
    other = await sched.enqueue(greet("c"), key="welcome-42", tenant="acme", delay=60)
    assert (first.id, first.created) == (second.id, True)
    assert not second.created
    assert other.id != first.id
    together = await asyncio.gather(*(sched.enqueue(greet("d"), key="burst", delay=60) for _ in range(50)))
    assert len({job.id for job in together}) == 1
    assert sum(job.created for job in together) == 1
    assert await first.cancel()
    again = await sched.enqueue(greet("e"), key="welcome-42", delay=60)
    assert again.created
    assert (await again.view()).args == {"name": "e"}


async def test_the_key_of_a_dead_letter_is_free_again(sched: Scheduler) -> None:
    # work that is silently not done because its predecessor failed last month
    async def fails() -> None:
        raise ValueError("no")

    handler = sched.job(fails)
    job = await sched.enqueue(handler(), key="k")
    await sched.store.promote(job.shard, 10)
    _, (claimed,) = await sched.store.claim(job.shard, 10, 10_000, "w")
    run = b"1 w 1 2 failed 2\nno"
    assert await sched.store.bury(job.shard, sched.store.caller(), [claimed.member, job.id, "no", run]) == []
    assert await job.status() is State.DEAD
    again = await sched.enqueue(handler(), key="k")
    assert again.created
    assert await again.status() in (State.READY, State.WAITING)
    assert [letter async for letter in sched.inspector.dead()] == []


async def test_concurrent_enqueues_share_script_calls(sched: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    # a script call for every enqueue; a caller that gets another's answer
    greet = declare(sched)
    calls: list[int] = []
    original = sched.store.enqueue

    async def counted(shard: int, seq: int, caller: Any, fresh: list[Any]) -> list[int]:
        calls.append(len(fresh) // 4)
        return await original(shard, seq, caller, fresh)

    monkeypatch.setattr(sched.store, "enqueue", counted)
    jobs = await asyncio.gather(*(sched.enqueue(greet(str(n)), tenant=f"t{n % 7}", delay=60) for n in range(1_000)))
    assert sum(calls) == 1_000
    assert len(calls) <= 3 * 3, f"{len(calls)} calls for 1,000 jobs of 3 shards"
    for n in (0, 1, 500, 999):
        assert (await jobs[n].view()).args == {"name": str(n)}


async def test_many_come_back_in_order(sched: Scheduler) -> None:
    # an answer that mixes up jobs of different shards, or loses those past the first batch
    greet = declare(sched)
    jobs = await sched.enqueue_many([greet(str(n)) for n in range(1_700)], delay=60)
    assert len({job.id for job in jobs}) == 1_700
    for n in (0, 499, 500, 1_699):
        assert (await jobs[n].view()).args == {"name": str(n)}
    assert (await sched.stats()).total("waiting") == 1_700


async def test_one_bad_call_among_many_stores_nothing(sched: Scheduler) -> None:
    # half of a batch stored, half not
    greet = declare(sched)
    with pytest.raises(PayloadTooLarge):
        await sched.enqueue_many([greet("fine"), greet("x" * 70_000)])
    assert (await sched.stats()).tenants == ()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"at": datetime(2030, 1, 1)}, "time zone"),  # noqa: DTZ001
        ({"at": datetime(2030, 1, 1, tzinfo=UTC), "delay": 5}, "not both"),
        ({"delay": -1}, "not negative"),
        ({"delay": "soon"}, "timedelta or seconds"),
        ({"delay": float("nan")}, "timedelta or seconds"),
        ({"priority": "urgent"}, "high, normal, low"),
        ({"durability": "very"}, "'async' or 'replicated'"),
        ({"key": ""}, "a key is 1 to"),
        ({"tenant": ""}, "a tenant's name"),
        ({"tenant": "x" * 129}, "a tenant's name"),
        ({"tenant": "\ud800"}, "surrogate"),
    ],
)
async def test_bad_options_are_refused_and_nothing_is_stored(sched: Scheduler, options: Any, says: str) -> None:
    # a bad option that is stored, ignored, or answered with a traceback of ours
    greet = declare(sched)
    with pytest.raises((InvalidCall, ConfigError), match=says):
        await sched.enqueue(greet("a"), **options)
    assert (await sched.stats()).tenants == ()


async def test_bad_arguments_are_refused_where_they_are_written(sched: Scheduler) -> None:
    # an argument that fails only in the worker
    greet = declare(sched)
    for wrong in (lambda: greet(5), lambda: greet(), lambda: greet("a", "b"), lambda: greet("a", color=1)):
        with pytest.raises(InvalidCall, match="greet"):
            wrong()
    with pytest.raises(InvalidCall, match="a call is needed"):
        await sched.enqueue(greet)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="name"):
        Call("no spaces allowed")


async def test_a_scheduler_that_is_not_open_says_so() -> None:
    # an AttributeError from deep inside
    sched = Scheduler("memory://")
    with pytest.raises(ConfigError, match="async with"):
        await sched.enqueue(declare(sched)("a"))


@pytest.mark.parametrize("kind", available_kinds())
async def test_another_shard_count_is_refused(sched: Scheduler) -> None:
    # two processes that look for the same tenant in different shards
    url, namespace = sched.store.url, sched.store.keys.namespace
    with pytest.raises(LayoutMismatch, match="3 shards, not 5"):
        async with Scheduler(url, namespace=namespace, shards=5):
            pass
    async with Scheduler(url, namespace=namespace) as same:
        assert same.store.shards == 3


async def test_an_absent_server_is_a_clear_error_in_time() -> None:
    # a hang, or redis-py's own exception
    sched = Scheduler("redis://:s3cret@127.0.0.1:1/0", timeout=0.3)
    with pytest.raises(StoreUnavailable, match=r"did not answer for 0\.3 s") as caught:
        async with sched:
            pass
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("kind", available_kinds())
async def test_a_full_server_refuses_work_and_says_so(kind: Any, tmp_path: Path) -> None:
    # half a job stored on a full server, or an error that hides the reason
    server = start_server(kind, tmp_path, config={"maxmemory-policy": "noeviction"})
    try:
        async with Scheduler(server.url) as sched:
            greet = declare(sched)
            first = await sched.enqueue(greet("fits"), delay=60)
            await sched.store.client.config_set("maxmemory", "1")
            with pytest.raises(StoreFull, match="memory limit"):
                await sched.enqueue(greet("does not"), delay=60)
            await sched.store.client.config_set("maxmemory", "0")
            assert (await sched.stats()).total("waiting") == 1
            await sched.enqueue(greet("fits again"), delay=60)
            assert await first.status() is State.WAITING
    finally:
        server.stop()


@pytest.mark.parametrize("kind", available_kinds())
async def test_an_evicting_server_is_refused_unless_told_otherwise(kind: Any, tmp_path: Path) -> None:
    # jobs that the server throws away behind our back
    config = {"maxmemory": "100mb", "maxmemory-policy": "allkeys-lru"}
    server = start_server(kind, tmp_path, config=config)
    try:
        with pytest.raises(ConfigError, match="maxmemory-policy noeviction"):
            async with Scheduler(server.url):
                pass
        async with Scheduler(server.url, allow_eviction=True) as sched:
            assert await (await sched.enqueue(declare(sched)("a"), delay=60)).status() is State.WAITING
    finally:
        server.stop()


@pytest.mark.parametrize("kind", available_kinds())
async def test_replicated_means_a_replica_has_it(kind: Any, tmp_path: Path) -> None:
    # an answer before the replica has the job; a success that promises what nobody holds
    primary = start_server(kind, tmp_path / "primary")
    replica = start_server(kind, tmp_path / "replica")
    try:
        async with Scheduler(primary.url, replicas=1, replica_timeout=0.1) as sched:
            greet = declare(sched)
            with pytest.raises(NotDurable, match="0 of 1"):
                await sched.enqueue(greet("alone"), delay=60, durability="replicated")
        replica.command("REPLICAOF", "127.0.0.1", str(primary.port))
        async with Scheduler(primary.url, replicas=1) as sched, aioredis.Redis.from_url(replica.url) as reader:
            greet = declare(sched)
            jobs = []
            for n in range(20):
                job = await _until_durable(sched, greet(str(n)))
                raw = await reader.hget(sched.store.keys.shards[job.shard]["jobs"], job.id)
                assert raw is not None, "the answer came before the replica had the job"
                jobs.append(job)
            many = await sched.enqueue_many([greet("m")] * 10, delay=60, durability="replicated")
            assert len({job.id for job in (*jobs, *many)}) == 30
    finally:
        replica.stop()
        primary.stop()


async def _until_durable(sched: Scheduler, call: Any) -> Any:
    """The replica's first synchronisation takes a moment; until then the error says so."""
    while True:
        try:
            return await sched.enqueue(call, delay=60, durability="replicated")
        except NotDurable:
            continue


@pytest.mark.parametrize("kind", available_kinds())
async def test_a_lost_reply_makes_no_second_job(kind: Any, server_of: Callable[[str], ServerProcess]) -> None:
    # the reply to an enqueue is cut, the job runs and is gone before the client asks again: only the numbered
    # call can tell that it was stored
    server, namespace = server_of(kind), f"c{random_name(8)}"
    async with Scheduler(server.url, namespace=namespace, shards=2) as direct, CuttingProxy(server.port) as proxy:
        ran: list[int] = []

        async with Scheduler(proxy.url, namespace=namespace) as sched:

            async def once(n: int) -> None:
                ran.append(n)

            handler = sched.job(once)
            direct.registry.handlers.update(sched.registry.handlers)
            for n in range(60):
                proxy.cut_replies(after=1 if n % 3 else 0)
                sending = asyncio.create_task(sched.enqueue(handler(n)))
                await proxy.cut.wait()
                # the job is stored and its reply lost: run it to its end before the repetition arrives
                await direct.run_until_idle()
                await sending
                await direct.run_until_idle()
        assert sorted(ran) == list(range(60))
        assert proxy.cuts >= 60
        assert (await direct.stats()).totals["enqueued"] == 60
        for key in await namespace_keys(direct.store):
            await direct.store.client.delete(key)


@pytest.mark.parametrize("kind", available_kinds())
async def test_a_server_that_restarts_is_ridden_through(kind: Any, tmp_path: Path) -> None:
    # an exception for the application, or a job lost, when the server comes back within the timeout
    server = start_server(kind, tmp_path, appendonly=True)
    try:
        async with Scheduler(server.url, timeout=20) as sched:
            greet = declare(sched)
            jobs = [await sched.enqueue(greet("before"), delay=60)]
            server.kill()
            waiting = asyncio.create_task(sched.enqueue(greet("during"), delay=60))
            await asyncio.to_thread(server.restart)
            jobs += [await waiting, await sched.enqueue(greet("after"), delay=60)]
            assert [await job.status() for job in jobs] == [State.WAITING] * 3
    finally:
        server.stop()
