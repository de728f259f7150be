"""An application that declares a schedule in code."""

from __future__ import annotations

import os
from datetime import timedelta

from redisched import Scheduler

sched = Scheduler(namespace=os.environ.get("REDISCHED_TEST_NAMESPACE", "rs"))


@sched.every(timedelta(milliseconds=300), tenant="heart")
async def beat() -> str:
    return "beat"
