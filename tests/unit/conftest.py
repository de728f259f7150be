"""What the tests of the in-memory scheduler share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from redisched import Retry, Scheduler

DAY = timedelta(days=1)
TOMORROW = Retry(max_attempts=3, backoff="constant", base=DAY, cap=DAY, jitter=0)


@pytest.fixture
async def sched() -> AsyncIterator[Scheduler]:
    """A scheduler of this test's own, with a movable clock."""
    async with Scheduler("memory://", shards=2) as opened:
        yield opened
