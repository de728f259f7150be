"""The application of the soak. What a handler did is a line in a file that outlives any kill, the server's too.

A line is one write to a file opened for appending: it is there whole or not at all, whoever dies next.
Every enqueue has a token of its own, which its handler writes down: a job id alone would not tell two jobs apart that
lived one after the other under the same key.
"""

from __future__ import annotations

import asyncio
import os
import time
import zlib

from redisched import Context, Retry, Scheduler

NAMESPACE = "chaos"
EFFECTS = "CHAOS_EFFECTS"  # the environment variable that names the file

sched = Scheduler(namespace=NAMESPACE)

# So many attempts that no fault buries a job: a dead letter is a finding.
PATIENT = Retry(max_attempts=50, backoff="constant", base=0.2, jitter=0.5)

# Read at the start: once the supervisor is dead, it is somebody else.
_SUPERVISOR = os.getppid()
_fd = -1


def note(what: str, ctx: Context, token: int) -> None:
    global _fd
    if _fd < 0:
        _fd = os.open(os.environ[EFFECTS], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    facts = (what, time.monotonic_ns(), token, ctx.job_id, ctx.attempt, ctx.fence, os.getpid(), _SUPERVISOR)
    os.write(_fd, (" ".join(map(str, facts)) + "\n").encode())


def failures_of(job_id: str) -> int:
    """How many attempts of a job fail by decision: always the same for the same job."""
    return zlib.crc32(job_id.encode()) % 4


@sched.job(retry=PATIENT)
async def work(ctx: Context, token: int, seconds: float) -> None:
    note("start", ctx, token)
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        note("cancelled", ctx, token)
        raise
    note("end", ctx, token)


@sched.job(retry=PATIENT)
async def flaky(ctx: Context, token: int, seconds: float) -> int:
    note("start", ctx, token)
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        note("cancelled", ctx, token)
        raise
    if ctx.attempt <= failures_of(ctx.job_id):
        note("failed", ctx, token)
        raise RuntimeError("as decided")
    note("end", ctx, token)
    return token


@sched.job(retry=PATIENT)
def threaded(ctx: Context, token: int, seconds: float) -> int:
    note("start", ctx, token)
    time.sleep(seconds)
    note("end", ctx, token)
    return token


HANDLERS = (work, work, flaky, flaky, threaded)
