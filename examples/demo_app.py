"""The application that `make demo` runs: jobs that work, wait, fail, recur, and belong to several tenants."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta

from redisched import Context, Retry, Scheduler

sched = Scheduler()


def say(ctx: Context, text: str) -> None:
    print(f"    {ctx.tenant:<10} {text}", flush=True)


@sched.job
async def welcome(ctx: Context, name: str) -> str:
    say(ctx, f"welcome, {name}")
    return f"welcomed {name}"


@sched.job
async def remind(ctx: Context, text: str) -> None:
    say(ctx, f"reminder, on time: {text}")


@sched.job(retry=Retry(max_attempts=4, base=1.0, jitter=0))
async def flaky(ctx: Context, what: str) -> None:
    if ctx.attempt < 3:
        say(ctx, f"{what}: attempt {ctx.attempt} fails")
        raise ConnectionError(f"{what} did not answer")
    say(ctx, f"{what}: attempt {ctx.attempt} works")


@sched.job(retry=Retry(max_attempts=2, base=1.0, jitter=0))
async def hopeless(ctx: Context) -> None:
    say(ctx, f"hopeless: attempt {ctx.attempt} of 2 fails")
    raise ValueError("this never works")


@sched.every(timedelta(seconds=3), tenant="heart")
async def pulse(ctx: Context) -> None:
    """Declared with its schedule: the worker puts it in place when it starts."""
    say(ctx, f"pulse of {ctx.scheduled_at:%H:%M:%S}")


@sched.job
async def report(ctx: Context, kind: str) -> None:
    say(ctx, f"{kind} report, idempotency key {ctx.idempotency_key}")


@sched.job
async def crunch(number: int) -> int:
    await asyncio.sleep(random.uniform(0.001, 0.003))
    return number * number
