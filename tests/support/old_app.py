"""An application that lacks the handlers of `app.py`: an older deployment."""

from __future__ import annotations

import os

from redisched import Scheduler

sched = Scheduler(namespace=os.environ.get("REDISCHED_TEST_NAMESPACE", "rs"))


@sched.job
async def something_else() -> None: ...
