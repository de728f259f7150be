"""The smallest application: declare a job, enqueue it, run it with `redisched worker hello:sched`."""

import asyncio

from redisched import Scheduler

sched = Scheduler()  # $REDISCHED_URL, or a server of its own on this machine


@sched.job
async def send_email(to: str, *, subject: str = "hi") -> int:
    print(f"to {to}: {subject}")
    return len(subject)


async def main() -> None:
    async with sched:
        job = await sched.enqueue(send_email("ada@example.org", subject="welcome"))
        print(f"{job.id} is {await job.status()}")


if __name__ == "__main__":
    asyncio.run(main())
