"""`redisched worker app:sched`: a supervisor and its worker processes on this host."""

from __future__ import annotations

import argparse

from redisched import logs
from redisched.cli.common import add_log_options, run_async
from redisched.host.application import load_application
from redisched.host.supervisor import HostSettings, Supervisor
from redisched.settings import WorkerSettings


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    p = subparsers.add_parser("worker", help="run jobs (and promote them, unless told otherwise)", description=__doc__)
    add_worker_options(p)
    p.set_defaults(run=run)


def add_worker_options(p: argparse.ArgumentParser) -> None:
    usual = WorkerSettings()
    p.add_argument("app", help="module:scheduler, for example app:sched")
    p.add_argument("--url", help="another address than the application's own")
    p.add_argument("--processes", type=int, default=1, metavar="N", help="worker processes; default 1")
    p.add_argument(
        "--concurrency", type=int, default=usual.concurrency, metavar="N", help="jobs at once in each process"
    )
    p.add_argument(
        "--lease", type=float, default=usual.lease_s, metavar="S", help="a lost host's jobs run again after this"
    )
    p.add_argument(
        "--grace", type=float, default=usual.grace_s, metavar="S", help="SIGTERM: how long running jobs may finish"
    )
    p.add_argument(
        "--cancel-grace",
        type=float,
        default=usual.cancel_grace_s,
        metavar="S",
        help="a handler that ignores its cancellation for so long costs its process",
    )
    p.add_argument("--burst", action="store_true", help="end when nothing is ready, running or due")
    p.add_argument("--no-scheduler", action="store_true", help="only run jobs; promotion runs elsewhere")
    add_log_options(p)


def run(args: argparse.Namespace) -> int:
    logs.setup(args.log_level, args.log_style)
    sched = load_application(args.app)
    if args.url:
        sched.use(args.url)
    settings = HostSettings(
        app=args.app,
        url=args.url,
        processes=max(1, args.processes),
        burst=args.burst,
        scheduler=not args.no_scheduler,
        worker=WorkerSettings(
            concurrency=args.concurrency, lease_s=args.lease, grace_s=args.grace, cancel_grace_s=args.cancel_grace
        ),
        log_level=args.log_level,
        log_style=args.log_style,
    )

    async def body() -> int:
        return await Supervisor(sched, settings).run()

    return run_async(body)
