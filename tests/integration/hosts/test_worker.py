"""`redisched worker` on real servers: jobs run, fail, time out, and survive what their processes do not."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from redisched import Call, JobFailed, Scheduler, State
from redisched.clock import mono_s
from tests.support import app, bare_app
from tests.support.host import Effects, Host, until
from tests.support.servers import start_server

pytestmark = pytest.mark.anyio


async def test_a_job_runs_and_its_result_comes_back(sched: Scheduler, start: Callable[..., Host]) -> None:
    # the whole way: enqueue, lane, claim, handler, acknowledgement, result; async and in a thread
    start()
    added = await sched.enqueue(app.add(2, 3))
    threaded = await sched.enqueue(app.in_thread(), tenant="acme", delay=0.05)
    assert await added.result(timeout=20) == 5
    assert (await threaded.result(timeout=20)).startswith("redisched-job")
    assert await added.status() is State.GONE
    assert [run.outcome for run in await added.runs()] == ["done"]


async def test_handlers_share_the_lifespan_and_may_enqueue(
    sched: Scheduler, start: Callable[..., Host], effects: Effects
) -> None:
    # a lifespan that is not entered, entered per job, or never left; a scheduler that is closed inside handlers
    host = start("--processes", "2")
    await sched.enqueue(app.spawns(20))
    await until(lambda: _done(sched, 21), "all spawned jobs are done")
    host.signal(signal.SIGTERM)
    assert await host.wait() == 0
    lines = await effects.lifespan()
    pids = {line.split()[1] for line in lines}
    assert len(pids) == 2
    assert sorted(lines) == sorted([f"{verb} {pid}" for verb in ("open", "close") for pid in pids])


async def _done(sched: Scheduler, count: int) -> bool:
    return (await sched.stats()).totals.get("done", 0) >= count


async def test_a_failing_job_ends_among_the_dead_letters_with_its_runs(
    sched: Scheduler, start: Callable[..., Host], effects: Effects
) -> None:
    # a retry that is lost, one too many or too few, a dead letter without its history
    start()
    job = await sched.enqueue(app.fails(), tenant="acme")
    with pytest.raises(JobFailed, match="as always"):
        await job.result(timeout=20)
    runs = await job.runs()
    assert [(run.attempt, run.outcome) for run in runs] == [(1, "failed"), (2, "failed"), (3, "failed")]
    assert "RuntimeError: as always" in runs[-1].error
    fences = [int(line[4]) for line in await effects.lines("start")]
    assert fences == sorted(set(fences)), "a fencing token did not grow"


async def test_a_job_past_its_timeout_is_stopped(sched: Scheduler, start: Callable[..., Host]) -> None:
    # a handler that runs on after its time, an outcome that does not say why
    start()
    job = await sched.enqueue(app.slow())
    with pytest.raises(JobFailed, match="timed out"):
        await job.result(timeout=20)
    assert [run.outcome for run in await job.runs()] == ["timeout"]


@pytest.mark.parametrize("handler", ["rude", "blocks_a_thread", "blocks_the_loop"])
async def test_a_handler_that_cannot_be_stopped_costs_its_process_not_its_neighbours(
    sched: Scheduler, start: Callable[..., Host], handler: str
) -> None:
    # a process that hangs for ever behind such a handler, or takes its other jobs down with it
    host = start("--cancel-grace", "0.3")
    await until(lambda: len(host.children()) == 1, "a child runs")
    (first,) = host.children()
    bad = await sched.enqueue(getattr(app, handler)())
    with pytest.raises(JobFailed):
        await bad.result(timeout=30)
    good = await sched.enqueue(app.add(1, 1))
    assert await good.result(timeout=20) == 2
    await until(lambda: host.children() not in ([], [first]), "the process was replaced")


async def test_a_lease_holds_while_a_handler_blocks_the_loop(
    sched: Scheduler, start: Callable[..., Host], effects: Effects
) -> None:
    # a heartbeat that stops with the loop: the job would be taken for lost and run twice
    start("--lease", "1")
    job = await sched.enqueue(app.blocks_for(3.0))
    assert await job.result(timeout=20) == "blocked"
    assert await effects.count("start") == 1


async def test_kill_9_of_a_process_gives_its_jobs_back_at_once(
    sched: Scheduler, start: Callable[..., Host], effects: Effects
) -> None:
    # jobs that wait for their leases though the supervisor knows, jobs lost, acknowledged twice or run three times
    host = start("--processes", "2", "--concurrency", "200", "--lease", "30")
    await until(lambda: len(host.children()) == 2, "two children run")
    jobs = await sched.enqueue_many([app.sleep(1.5) for _ in range(200)])
    await until(lambda: _starts(effects, 200), "all run")
    lines = await effects.lines("start")
    victim = int(lines[0][1])
    hit = [line[2] for line in lines if int(line[1]) == victim]
    killed = mono_s()
    os.kill(victim, signal.SIGKILL)
    await until(lambda: _starts(effects, 200 + len(hit)), "the interrupted run again")
    assert mono_s() - killed < 10, "they waited for something other than the supervisor"
    assert [await job.result(timeout=30) for job in jobs] == ["slept"] * 200
    starts = [line[2] for line in await effects.lines("start")]
    assert {job: starts.count(job) for job in hit} == dict.fromkeys(hit, 2)
    assert await effects.count("end") == 200
    assert (await sched.stats()).totals["done"] == 200


async def _starts(effects: Effects, count: int) -> bool:
    return await effects.count("start") >= count


async def test_a_lost_host_costs_its_lease(sched: Scheduler, start: Callable[..., Host], effects: Effects) -> None:
    # jobs of a host that is gone for good
    first = start("--lease", "1")
    jobs = await sched.enqueue_many([app.sleep(2.0) for _ in range(20)])
    await until(lambda: _starts(effects, 20), "all run")
    first.end()
    start("--lease", "1")
    assert [await job.result(timeout=30) for job in jobs] == ["slept"] * 20
    assert [run.outcome for run in await jobs[0].runs()] == ["lost", "done"]


async def test_a_job_that_kills_its_worker_is_buried(
    sched: Scheduler, start: Callable[..., Host], effects: Effects
) -> None:
    # a poison job that takes down one process after the other, for ever
    start("--processes", "2")
    job = await sched.enqueue(app.kills_its_worker())
    with pytest.raises(JobFailed, match="died"):
        await job.result(timeout=30)
    assert await effects.count("start") == 2


async def test_children_end_with_their_supervisor(sched: Scheduler, start: Callable[..., Host]) -> None:
    # an orphan that goes on claiming while nobody renews its leases
    host = start()
    await (await sched.enqueue(app.add(1, 1))).result(timeout=20)
    children = host.children()
    os.kill(host.process.pid, signal.SIGKILL)
    await until(lambda: not any(Path(f"/proc/{pid}/stat").exists() for pid in children), "the children are gone")


async def test_sigterm_lets_running_jobs_finish_and_returns_the_rest(
    sched: Scheduler, start: Callable[..., Host], effects: Effects
) -> None:
    # a drain that cuts jobs off within the grace time, or claims on
    host = start("--concurrency", "5")
    jobs = await sched.enqueue_many([app.sleep(1.0) for _ in range(8)])
    await until(lambda: _starts(effects, 5), "five run")
    host.signal(signal.SIGTERM)
    assert await host.wait() == 0
    assert await effects.count("end") == 5
    assert await effects.count("cancelled") == 0
    states = [await job.status() for job in jobs]
    assert states.count(State.GONE) == 5
    assert {*states} <= {State.GONE, State.READY, State.WAITING}


@pytest.mark.parametrize("how", ["grace over", "second signal"])
async def test_what_cannot_finish_in_time_goes_back_without_using_up_an_attempt(
    sched: Scheduler, start: Callable[..., Host], effects: Effects, how: str
) -> None:
    # a drain that waits for ever, loses the job, or counts the interruption against it
    host = start("--grace", "0.2" if how == "grace over" else "60")
    job = await sched.enqueue(app.sleep(60))
    await until(lambda: _starts(effects, 1), "it runs")
    host.signal(signal.SIGTERM)
    if how == "second signal":
        await until(lambda: "draining" in host.log, "the first signal is understood")
        host.signal(signal.SIGTERM)
    assert await host.wait() == 0
    assert await effects.count("cancelled") == 1
    view = await job.view()
    assert view.state in (State.WAITING, State.READY)
    assert view.attempts == 0
    assert await job.cancel()


async def test_a_slow_job_does_not_sit_on_what_was_fetched_ahead(
    sched: Scheduler, start: Callable[..., Host], effects: Effects
) -> None:
    # jobs that were fetched ahead behind quick handlers, and then wait for a slow one while another host is idle
    start("--concurrency", "1")
    quick = await sched.enqueue_many([app.add(n, n) for n in range(300)], tenant="a")
    await quick[-1].result(timeout=20)
    await sched.enqueue_many([app.sleep(20) for _ in range(2)], tenant="a")
    await until(lambda: _starts(effects, 1), "the first slow one runs")
    start("--concurrency", "1")
    await until(lambda: _starts(effects, 2), "the second runs on the other host", timeout_s=10)


async def test_burst_ends_when_nothing_is_left(sched: Scheduler, start: Callable[..., Host]) -> None:
    # a burst that leaves due work, retries or spawned jobs behind, or waits for tomorrow's
    await sched.enqueue(app.spawns(30))
    later = await sched.enqueue(app.add(1, 1), delay=3600)
    host = start("--burst")
    assert await host.wait(30) == 0
    assert (await sched.stats()).totals["done"] == 31
    assert await later.status() is State.WAITING
    assert await later.cancel()


async def test_an_unknown_handler_goes_back_for_a_worker_that_has_it(
    sched: Scheduler, start: Callable[..., Host]
) -> None:
    # a job thrown away, buried or its attempts used up because one host runs older code
    old = start(app="tests.support.old_app:sched")
    job = await sched.enqueue(app.add(20, 22))
    await until(lambda: "no such handler here" in old.log, "the old host meets the job")
    start()
    assert await job.result(timeout=30) == 42
    assert [run.outcome for run in await job.runs()] == ["done"]


async def test_a_payload_that_does_not_fit_the_handler_is_buried_with_the_reason(
    sched: Scheduler, start: Callable[..., Host]
) -> None:
    # a worker that crashes on it, runs it, or tries it again and again
    start()
    job = await sched.enqueue(Call("add", "one", b=2))
    with pytest.raises(JobFailed, match="undecodable"):
        await job.result(timeout=20)


async def test_cancel_reaches_a_running_job(sched: Scheduler, start: Callable[..., Host], effects: Effects) -> None:
    # a handler that runs on after its cancellation, or whose end changes something
    start("--lease", "1")
    job = await sched.enqueue(app.sleep(60))
    await until(lambda: _starts(effects, 1), "it runs")
    assert await job.cancel()
    assert await job.status() is State.GONE
    await until(lambda: _cancelled(effects), "its handler is cancelled")
    assert (await job.view()).outcome == "cancelled"


async def _cancelled(effects: Effects) -> bool:
    return await effects.count("cancelled") == 1


async def test_a_zombie_changes_nothing(sched: Scheduler, start: Callable[..., Host], effects: Effects) -> None:
    # a host that sleeps through its lease, wakes up and acknowledges what is somebody else's
    zombie = start("--lease", "1")
    job = await sched.enqueue(app.sleep(1.5))
    await until(lambda: _starts(effects, 1), "it runs")
    pids = [zombie.process.pid, *zombie.children()]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    start("--lease", "1")
    await until(lambda: _starts(effects, 2), "it runs elsewhere")
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    assert await job.result(timeout=20) == "slept"
    await until(lambda: "lease lost" in zombie.log, "the zombie learns it")
    assert (await sched.stats()).totals["done"] == 1


async def test_an_application_that_does_not_load_is_an_error_not_a_loop(start: Callable[..., Host]) -> None:
    # a supervisor that starts a broken application for ever, or shows a traceback instead of a sentence
    host = start(app="tests.support.nowhere:sched")
    assert await host.wait() == 2
    assert "there is no module 'tests.support.nowhere'" in host.log
    assert "Traceback" not in host.log


@pytest.mark.parametrize("away_s", [3.0, 13.0])
async def test_an_outage_of_the_server_runs_nothing_twice(away_s: float, tmp_path: Path) -> None:
    # outcomes thrown away because the store did not answer; leases of the living taken for dead when it is back
    # (they all end during the outage: the lease is one second)
    server = start_server("valkey", tmp_path / "server", appendonly=True)
    log = tmp_path / "host.log"
    host = Host(server.url, "outage", log, "--lease", "1", app="tests.support.bare_app:sched")
    try:
        async with Scheduler(server.url, namespace="outage", timeout=30) as sched:
            await (await sched.enqueue(bare_app.add(1, 1))).result(timeout=20)
            counted = tmp_path / "counted"
            jobs = await sched.enqueue_many([bare_app.count(str(counted), 2.0) for _ in range(50)])
            await until(lambda: counted.exists() and counted.read_text().count("start") == 50, "all run")
            server.kill()
            await asyncio.sleep(away_s)  # the length of the outage is what is tested
            await asyncio.to_thread(server.restart)
            assert [await job.result(timeout=60) for job in jobs] == ["counted"] * 50
            assert counted.read_text().count("start") == 50, log.read_text()[-3000:]
    finally:
        host.end()
        server.stop()
