"""What a review of the engine broke, each with the smallest way to break it again."""

from __future__ import annotations

import asyncio
import contextvars
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from redisched import Call, ConfigError, InvalidCall, JobFailed, Retry, Scheduler, State, StoreFull, UnknownJob
from redisched.store import Store
from tests.support import bare_app
from tests.support.host import Host, until
from tests.support.servers import ServerProcess, start_server

pytestmark = pytest.mark.anyio


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    started = start_server("valkey", tmp_path / "server", appendonly=True)
    yield started
    started.stop()


@pytest.fixture
def hosts(server: ServerProcess, tmp_path: Path) -> Iterator[Any]:
    started: list[Host] = []

    def start(*options: str) -> Host:
        log = tmp_path / f"{len(started)}.log"
        started.append(Host(server.url, "hard", log, *options, app="tests.support.bare_app:sched"))
        return started[-1]

    yield start
    for host in started:
        host.end()


async def works(sched: Scheduler) -> bool:
    return await (await sched.enqueue(bare_app.add(1, 1))).result(timeout=20) == 2


async def test_cancellation_reaches_through_a_call(server: ServerProcess) -> None:
    # redis-py on Python 3.11 swallows a cancellation that comes as a send completes: a role that is told to end goes on
    async with Scheduler(server.url) as sched:
        for n in range(300):
            task = asyncio.create_task(_ask_for_ever(sched.store))
            for _ in range(n % 7):
                await asyncio.sleep(0)
            task.cancel()
            done, _ = await asyncio.wait([task], timeout=5)
            assert done, f"try {n}: the task goes on after its cancellation"


async def _ask_for_ever(store: Store) -> None:
    while True:
        await store.reach(0)


async def test_too_few_replicas_for_a_while_pass(server: ServerProcess, hosts: Any) -> None:
    # a refusal that nobody expects from a blocking read ends workers and promotion for good
    hosts()
    async with Scheduler(server.url, namespace="hard") as sched:
        assert await works(sched)
        await sched.store.client.config_set("min-replicas-to-write", 1)
        waiting = asyncio.create_task(sched.enqueue(bare_app.add(2, 2), delay=0.1))
        await asyncio.sleep(2.5)  # longer than every sleeper's look
        await sched.store.client.config_set("min-replicas-to-write", 0)
        assert await (await waiting).result(timeout=20) == 4
        assert await works(sched)


async def test_two_signals_end_a_host_whose_loop_is_blocked(server: ServerProcess, hosts: Any) -> None:
    # a child that cannot hear keeps its supervisor waiting; the job must be back, and not have used up an attempt
    host = hosts()
    async with Scheduler(server.url, namespace="hard") as sched:
        job = await sched.enqueue(bare_app.block(30.0))
        await until(lambda: _is(job, State.RUNNING), "it runs")
        host.signal(signal.SIGTERM)
        await until(lambda: "draining" in host.log, "the first signal is understood")
        host.signal(signal.SIGTERM)
        assert await host.wait(8) == 0
        view = await job.view()
        assert view.state in (State.WAITING, State.READY)
        assert view.attempts == 0


async def _is(job: Any, state: State) -> bool:
    return bool(await job.status() is state)


async def test_a_child_that_dies_during_an_outage_is_replaced_after_it(server: ServerProcess, hosts: Any) -> None:
    # a start that fails because the server is away is taken for a broken application, and ends the host
    host = hosts("--processes", "2")
    async with Scheduler(server.url, namespace="hard", timeout=40) as sched:
        assert await works(sched)
        server.kill()
        for pid in host.children():
            os.kill(pid, signal.SIGKILL)
        await until(lambda: host.log.count("worker cannot start") >= 1, "a start fails", timeout_s=30)
        await asyncio.to_thread(server.restart)
        assert await works(sched)
        assert host.process.poll() is None


async def test_burst_leaves_no_end_of_a_chain(server: ServerProcess, hosts: Any) -> None:
    # shards are asked one after the other, while a job hops to one that was asked already
    async with Scheduler(server.url, namespace="hard") as sched:
        await sched.enqueue(bare_app.hop(400))
        assert await hosts("--burst").wait(60) == 0
        assert (await sched.stats()).totals["done"] == 401


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text for you")


@dataclass
class Picky:
    value: int

    def __post_init__(self) -> None:
        if self.value > 1:
            raise KeyError("too much")


@pytest.mark.parametrize(
    "error", [ValueError("\udcff.txt"), Unprintable(), SystemExit(3)], ids=["surrogate", "text", "exit"]
)
async def test_any_exception_is_an_outcome(error: BaseException) -> None:
    # an outcome that cannot be written down is never sent: the job runs for ever, and so do all after it
    async with Scheduler("memory://", shards=1) as sched:

        @sched.job(retry=Retry(max_attempts=1))
        async def fails() -> None:
            raise error

        @sched.job
        async def fine() -> int:
            return 1

        bad, good = await sched.enqueue(fails()), await sched.enqueue(fine())
        await sched.run_until_idle()
        assert await bad.status() is State.DEAD
        assert await good.result() == 1
        late = await sched.enqueue(fine())
        await sched.run_until_idle()
        assert await late.result() == 1


async def test_an_argument_whose_type_raises_is_buried_alone() -> None:
    # a user's own constructor stops fetching for everybody
    async with Scheduler("memory://", shards=1) as sched:

        @sched.job
        async def takes(picky: Picky) -> int:
            return picky.value

        good = await sched.enqueue(takes(Picky(1)))
        bad = await sched.enqueue(Call("takes", picky={"value": 1}))
        shard = sched.store.keys.shards[0]
        record = await sched.store.client.hget(shard["jobs"], bad.id)
        await sched.store.client.hset(shard["jobs"], bad.id, record.replace(b"value\x01", b"value\x07"))
        await sched.run_until_idle()
        assert await good.result() == 1
        with pytest.raises(JobFailed, match="too much"):
            await bad.result()


async def test_context_variables_do_not_pass_from_job_to_job() -> None:
    # a tenant's request id, set by one job, is seen by the next one, which is another tenant's
    seen: contextvars.ContextVar[str] = contextvars.ContextVar("seen", default="clean")
    found: set[str] = set()
    async with Scheduler("memory://", shards=1) as sched:

        @sched.job
        async def leaves(n: int) -> None:
            found.add(seen.get())
            await asyncio.sleep(0)
            seen.set(f"job {n}")

        await sched.enqueue_many([leaves(n) for n in range(600)])
        await sched.run_until_idle()
    assert found == {"clean"}


def test_two_handlers_of_one_name_are_refused_wherever_they_stand() -> None:
    # the second of two modules' `send` silently runs the jobs of both
    sched = Scheduler("memory://")
    for module in ("billing", "mail"):

        def send() -> None: ...

        send.__module__, send.__qualname__ = module, "send"
        if module == "billing":
            sched.job(send)
        else:
            with pytest.raises(ConfigError, match="two handlers are named 'send'"):
                sched.job(send)


async def test_a_reused_key_forgets_the_last_outcome() -> None:
    # the second job of a key answers with the cancellation, or the result, of the first
    async with Scheduler("memory://") as sched:

        @sched.job
        async def maybe(answer: int) -> int | None:
            return answer or None

        first = await sched.enqueue(maybe(5), key="k")
        assert await first.cancel()
        second = await sched.enqueue(maybe(7), key="k")
        assert await second.status() is State.READY
        await sched.run_until_idle()
        assert await second.result() == 7
        third = await sched.enqueue(maybe(0), key="k")
        await sched.run_until_idle()
        assert await third.result() is None


async def test_tasks_that_open_one_scheduler_together_share_it(server: ServerProcess) -> None:
    # the second finds it half open; a failing open leaves it unusable; use after the end is an AttributeError
    sched = Scheduler(server.url)

    async def use() -> None:
        async with sched:
            assert await (await sched.enqueue(bare_app.add(1, 1), delay=60)).status() is State.WAITING

    await asyncio.gather(*(use() for _ in range(10)))
    broken = Scheduler("redis://127.0.0.1:1", timeout=0.1)
    for _ in range(2):
        with pytest.raises(Exception, match="did not answer"):
            await broken.__aenter__()
    async with sched:
        job = await sched.enqueue(bare_app.add(1, 1), delay=60)
    with pytest.raises(ConfigError, match="closed"):
        await job.status()


async def test_enqueue_many_says_what_is_stored_when_it_fails_on_the_way(server: ServerProcess) -> None:
    # "took nothing", when half of it was taken: a repetition would double that half
    async with Scheduler(server.url, shards=2) as sched:
        calls = 0
        original = sched.store.enqueue

        async def fills_up(*args: Any) -> list[int]:
            nonlocal calls
            calls += 1
            if calls == 3:
                await sched.store.client.config_set("maxmemory", 1)
            return await original(*args)

        sched.store.enqueue = fills_up  # type: ignore[method-assign]
        with pytest.raises(StoreFull) as caught:
            await sched.enqueue_many([bare_app.add(n, n) for n in range(4_000)], delay=60)
        await sched.store.client.config_set("maxmemory", 0)
        assert (await sched.stats()).total("waiting") == len(caught.value.stored) > 0
        assert "known to be stored" in caught.value.__notes__[0]


async def test_odd_requests_are_refused_in_words() -> None:
    # a job that nobody can show any more; a result that nobody has; a call by name that fits no handler
    async with Scheduler("memory://") as sched:

        @sched.job
        async def takes(n: int) -> int:
            return n

        with pytest.raises(InvalidCall, match="9999"):
            await sched.enqueue(takes(1), delay=timedelta(days=365 * 9_000))
        with pytest.raises(InvalidCall, match="takes"):
            await sched.enqueue(Call("takes", 1, 2, 3))
        with pytest.raises(UnknownJob):
            await sched.get_job("never-was").result(timeout=1)
        job = await sched.enqueue(takes(1))
        await sched.run_until_idle()
        await sched.store.client.delete(sched.store.keys.shards[job.shard].result(job.id))
        with pytest.raises(UnknownJob, match="keep_result"):
            await job.result(timeout=1)
