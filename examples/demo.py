"""`make demo`: an embedded server, a scheduler and a worker with two processes, at work for about 20 seconds.

Starts the same commands that a user would, in a folder of its own, and leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

HERE = Path(__file__).parent
FOLDER = Path(tempfile.mkdtemp(prefix="redisched-demo-"))
os.environ["REDISCHED_HOME"] = str(FOLDER)
os.environ.pop("REDISCHED_URL", None)
sys.path.insert(0, str(HERE))

from demo_app import crunch, flaky, hopeless, remind, report, sched, welcome  # noqa: E402

from redisched import Cron, JobFailed, Scheduler  # noqa: E402
from redisched.embedded import EmbeddedServer  # noqa: E402

SECONDS = 16


def heading(text: str) -> None:
    print(f"\n{text}", flush=True)


def start(*words: str) -> subprocess.Popen[bytes]:
    print(f"  $ redisched {' '.join(words)}", flush=True)
    command = [sys.executable, "-m", "redisched", *words, "--log-level", "ERROR"]
    # A session of their own: Ctrl-C reaches them through us, once, and in order.
    return subprocess.Popen(command, cwd=HERE, start_new_session=True)


async def show() -> None:
    heading("Enqueueing")
    job = await sched.enqueue(welcome("Ada"))
    print(f"  now:       {job}")
    print(f"  its result is {await job.result(timeout=15)!r}")
    for seconds in (3, 6):
        due = datetime.now(UTC) + timedelta(seconds=seconds)
        await sched.enqueue(remind(f"due {due:%H:%M:%S}"), at=due, tenant="acme")
    print("  delayed:   two reminders for acme, in 3 and 6 s")
    every_five = Cron("*/5 * * * * *", tz="Asia/Tokyo", seconds=True)
    plan = await sched.schedule("sales", report("sales"), every_five, tenant="acme", idempotency_key="sales-{second}")
    print("  recurring: a pulse every 3 s, declared in code; a report for acme every 5 s of Tokyo's clock")
    await plan.trigger()
    await sched.enqueue(flaky("weather API"), tenant="acme")
    doomed = await sched.enqueue(hopeless(), tenant="globex")
    print("  failing:   one that works at its third attempt, one that never does")

    heading("Three tenants, one of them noisy")
    begin = time.perf_counter()
    noisy = await sched.enqueue_many([crunch(n) for n in range(20_000)], tenant="noisy", delay=1)
    print(f"  noisy drops {len(noisy):,} jobs in {time.perf_counter() - begin:.2f} s; acme and globex add 50 each")
    polite = []
    for tenant in ("acme", "globex"):
        polite += await sched.enqueue_many([crunch(n) for n in range(50)], tenant=tenant, delay=1)
    begin = time.perf_counter() + 1
    await asyncio.gather(*(job.result(timeout=30) for job in polite))
    print(f"  acme and globex are served after {time.perf_counter() - begin:.2f} s", flush=True)
    await noisy[-1].result(timeout=30)
    print(f"  noisy is done after {time.perf_counter() - begin:.2f} s", flush=True)
    try:
        await doomed.result(timeout=20)
    except JobFailed as error:
        print(f"  {error}", flush=True)


async def summary(watched: Scheduler) -> int:
    stats = await watched.stats()
    heading("Summary")
    for what in ("enqueued", "fired", "done", "retried", "buried"):
        print(f"  {what:<10}{stats.totals.get(what, 0):>8,}")
    letters = [letter async for _, letter in watched.inspector.dead()]
    for letter in letters:
        print(
            f"  dead letter {letter.id}: {letter.name} of {letter.tenant}, {letter.attempts} attempts, {letter.error}"
        )
    for plan in await watched.plans():
        print(f"  schedule {plan.name} of {plan.tenant}: {plan.words} {plan.made} made, next {plan.next_at:%H:%M:%S}")
    left = stats.total("ready") + stats.total("running")
    print(f"  left to do now: {left}; waiting for their time: {stats.total('waiting')}")
    return 0 if left == 0 and len(letters) == 1 and stats.totals.get("done", 0) > 20_100 else 1


async def demo(processes: list[subprocess.Popen[bytes]]) -> int:
    began = time.monotonic()
    async with sched:
        heading("Starting (the embedded server is running)")
        processes.append(start("scheduler"))
        processes.append(start("worker", "demo_app:sched", "--processes", "2", "--no-scheduler"))
        await show()
        heading("The pulse goes on ...")
        await asyncio.sleep(max(0.0, SECONDS - (time.monotonic() - began)))
        end(processes)
        return await summary(sched)


def end(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
    for process in processes:
        process.wait()


def main() -> int:
    processes: list[subprocess.Popen[bytes]] = []
    # Scheduler() would start the server by itself; a share of our own lets us wait for its end.
    server = EmbeddedServer()
    server.start()
    try:
        return asyncio.run(demo(processes))
    except KeyboardInterrupt:
        print("stopping ...")
        return 130
    finally:
        end(processes)
        server.stop(wait_s=10)
        shutil.rmtree(FOLDER, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
