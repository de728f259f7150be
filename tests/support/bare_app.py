"""An application without resources of its own: for servers that its handlers cannot reach by a plain client."""

from __future__ import annotations

import asyncio
import os
import time

from redisched import Scheduler

sched = Scheduler(namespace=os.environ.get("REDISCHED_TEST_NAMESPACE", "rs"))


@sched.job
async def add(a: int, b: int) -> int:
    return a + b


@sched.job
async def count(path: str, seconds: float) -> str:
    """Leaves a line in a file for each start: the server itself may be away."""
    with open(path, "a") as file:  # noqa: ASYNC230
        file.write("start\n")
    await asyncio.sleep(seconds)
    return "counted"


@sched.job
async def block(seconds: float) -> None:
    """Holds the loop, as careless code does."""
    time.sleep(seconds)  # noqa: ASYNC251


@sched.job
async def hop(left: int) -> None:
    """Enqueues its successor to any shard."""
    if left:
        await sched.enqueue(hop(left - 1))
