"""The application of the worker tests. What a handler did is written to Redis lists, which survive any kill."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import redis.asyncio as aioredis

from redisched import Context, Retry, Scheduler

NAMESPACE = os.environ.get("REDISCHED_TEST_NAMESPACE", "rs")
EFFECTS = f"{NAMESPACE}-effects"


@asynccontextmanager
async def resources() -> AsyncIterator[aioredis.Redis]:
    client = aioredis.Redis.from_url(os.environ["REDISCHED_URL"])
    await client.rpush(f"{EFFECTS}:lifespan", f"open {os.getpid()}")
    try:
        yield client
    finally:
        await client.rpush(f"{EFFECTS}:lifespan", f"close {os.getpid()}")
        await client.aclose()


sched = Scheduler(namespace=NAMESPACE, lifespan=resources)


async def effect(ctx: Context, what: str) -> None:
    await ctx.resource.rpush(EFFECTS, f"{what} {os.getpid()} {ctx.job_id} {ctx.attempt} {ctx.fence}")


@sched.job
async def add(a: int, b: int) -> int:
    return a + b


@sched.job
async def sleep(seconds: float, ctx: Context) -> str:
    await effect(ctx, "start")
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        await effect(ctx, "cancelled")
        raise
    await effect(ctx, "end")
    return "slept"


@sched.job
def in_thread(ctx: Context) -> str:
    return threading.current_thread().name


@sched.job(retry=Retry(max_attempts=3, base=0.05, jitter=0))
async def fails(ctx: Context) -> None:
    await effect(ctx, "start")
    raise RuntimeError("as always")


@sched.job(timeout=0.3, retry=Retry(max_attempts=1))
async def slow() -> None:
    await asyncio.sleep(60)


@sched.job(timeout=0.3, retry=Retry(max_attempts=1))
async def rude() -> None:
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass


@sched.job(timeout=0.3, retry=Retry(max_attempts=1))
def blocks_a_thread() -> None:
    time.sleep(60)


@sched.job(timeout=0.5, retry=Retry(max_attempts=1))
async def blocks_the_loop() -> None:
    time.sleep(60)  # noqa: ASYNC251


@sched.job(retry=Retry(max_attempts=2))
async def kills_its_worker(ctx: Context) -> None:
    await effect(ctx, "start")
    os.kill(os.getpid(), signal.SIGKILL)


@sched.job
async def blocks_for(seconds: float, ctx: Context) -> str:
    await effect(ctx, "start")
    time.sleep(seconds)  # noqa: ASYNC251
    return "blocked"


@sched.job
async def spawns(count: int) -> None:
    """A handler that enqueues: the application's scheduler is open while it runs."""
    await sched.enqueue_many([add(n, n) for n in range(count)])
