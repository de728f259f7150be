"""An application without resources of its own: for servers that its handlers cannot reach by a plain client."""

from __future__ import annotations

import os

from redisched import Scheduler

sched = Scheduler(namespace=os.environ.get("REDISCHED_TEST_NAMESPACE", "rs"))


@sched.job
async def add(a: int, b: int) -> int:
    return a + b
