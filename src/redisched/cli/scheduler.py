"""`redisched scheduler`: promotion, recovery and pruning only; needs no application code."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket

from redisched import logs
from redisched.cli.common import add_log_options, add_store_options, with_scheduler
from redisched.client import Scheduler
from redisched.scheduler import Roles


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    p = subparsers.add_parser("scheduler", help="promote due jobs; needs no application code", description=__doc__)
    add_store_options(p)
    add_log_options(p)
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    logs.setup(args.log_level, args.log_style)

    async def work(sched: Scheduler) -> int:
        ending = asyncio.Event()
        for signum in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(signum, ending.set)
        name = f"{socket.gethostname()}:{os.getpid()}:scheduler"
        roles = asyncio.create_task(Roles(sched.store).run())
        announcing = asyncio.create_task(sched.store.keep_announcing(name))
        await asyncio.wait([roles, asyncio.create_task(ending.wait())], return_when=asyncio.FIRST_COMPLETED)
        for task in (roles, announcing):
            task.cancel()
        await asyncio.gather(roles, announcing, return_exceptions=True)
        await sched.store.leave(name)
        return 0

    return with_scheduler(args, work)
