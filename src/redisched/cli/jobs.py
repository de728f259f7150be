"""`redisched jobs list|show|cancel`: what is stored, where a job is and why, and stopping one."""

from __future__ import annotations

import argparse
import asyncio
from datetime import timedelta
from typing import Any

from redisched.cli.common import (
    add_json_option,
    add_store_options,
    iso,
    once,
    positive,
    print_json,
    print_table,
    shown,
    span,
)
from redisched.client import Scheduler
from redisched.clock import from_ms, to_ms
from redisched.errors import StoreError, UnknownJob
from redisched.handles import last_line
from redisched.listing import ORDER
from redisched.model import JobView, Run
from redisched.state import State

CANCEL_S = 10.0


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser("jobs", help="list, show and cancel jobs", description=__doc__)
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    listing = verbs.add_parser("list", help="jobs: running, ready, waiting (next one first), dead")
    listing.add_argument("--state", choices=[s.value for s in ORDER])
    listing.add_argument("--tenant")
    listing.add_argument("--name", help="the handler's name")
    listing.add_argument("--limit", type=positive, default=50, metavar="N", help="default: 50")
    show = verbs.add_parser("show", help="where a job is, why it does not run now, and its runs")
    cancel = verbs.add_parser("cancel", help="stop a job wherever it is")
    for verb, action in ((listing, run_list), (show, run_show), (cancel, run_cancel)):
        if verb is not listing:
            verb.add_argument("id", metavar="ID")
            verb.add_argument("--tenant", help="whose job it is: spares a look into every shard")
        add_store_options(verb)
        add_json_option(verb)
        verb.set_defaults(run=action)


def run_list(args: argparse.Namespace) -> int:
    async def work(sched: Scheduler) -> int:
        state = State(args.state) if args.state else None
        views = await sched.inspector.jobs(state=state, tenant=args.tenant, name=args.name, limit=args.limit)
        if args.json:
            print_json(views)
            return 0
        now = from_ms(await sched.inspector.now_ms())
        rows = [(v.id, v.state, v.tenant, v.name, _attempts(v), _briefly(v, now)) for v in views]
        print_table(("id", "state", "tenant", "name", "attempts", ""), rows, "no such jobs")
        if len(views) == args.limit:
            print(f"the first {args.limit}; more with --limit")
        return 0

    return once(args, work)


def run_show(args: argparse.Namespace) -> int:
    async def work(sched: Scheduler) -> int:
        view = await find(sched, args.id, args.tenant)
        stats = await sched.stats()
        why = explain(view, to_ms(stats.at), alive=bool(stats.members))
        if args.json:
            print_json({**{f: getattr(view, f) for f in view.__slots__}, "explanation": why})
        else:
            print("\n".join(describe(view, why)))
        return 0

    return once(args, work)


def run_cancel(args: argparse.Namespace) -> int:
    async def work(sched: Scheduler) -> int:
        view = await sched.inspector.job(args.id, args.tenant)
        if view.state is State.GONE:
            return _answer(args, False, view.outcome or "gone", f"job {args.id} is gone already: nothing to cancel")
        if view.state is State.DEAD:
            hint = f"job {args.id} is dead already; `redisched dead purge {args.id}` removes it"
            return _answer(args, False, "dead", hint)
        try:
            # A broken job, in no place, would be looked for without end.
            async with asyncio.timeout(CANCEL_S):
                done = await sched.get_job(args.id, view.tenant).cancel()
        except TimeoutError:
            raise StoreError(f"job {args.id} has a record but no place: run `redisched doctor --fix`") from None
        if not done:
            return _answer(args, False, "gone", f"job {args.id} ended before it could be cancelled")
        ran = "; its handler is told within seconds" if view.state is State.RUNNING else ""
        return _answer(args, True, "cancelled", f"cancelled job {args.id} ({view.name}){ran}")

    return once(args, work)


def _answer(args: argparse.Namespace, cancelled: bool, word: str, text: str) -> int:
    if args.json:
        print_json({"id": args.id, "cancelled": cancelled, "state": word})
    else:
        print(shown(text))
    return 0 if cancelled else 1


async def find(sched: Scheduler, job_id: str, tenant: str | None) -> JobView:
    view = await sched.inspector.job(job_id, tenant)
    if view.state is State.GONE and view.outcome is None:
        whose = f" of tenant {tenant}" if tenant is not None else ""
        raise UnknownJob(f"there is no job {job_id}{whose}: it never was, or it ended and nothing of it was kept")
    return view


def explain(view: JobView, now_ms: int, *, alive: bool) -> str:
    """Where it is and why it does not run now, in a sentence."""
    nobody = "" if alive else "; no worker is alive"
    if view.state is State.RUNNING:
        if view.worker is None:
            return "it is being handed over, or in no place: ask again, then run `redisched doctor`"
        left_s = (to_ms(view.lease_until) - now_ms) / 1000 if view.lease_until else 0
        if left_s < 0:
            return f"its worker {view.worker} has not been heard of for a while; it will be taken back"
        return f"it runs on {view.worker}; its lease ends in {span(left_s)} unless it is renewed"
    if view.state is State.READY:
        ahead = (view.position or 1) - 1
        before = "1 job is" if ahead == 1 else f"{ahead:,} jobs are"
        return f"it is ready; {before} before it in its lane{nobody}"
    if view.state is State.WAITING and view.run_at is not None:
        wait_s = (to_ms(view.run_at) - now_ms) / 1000
        again = f"; it has failed {view.attempts} of {view.max_attempts} times" if view.attempts else ""
        if wait_s > 0:
            return f"it waits for its time, in {span(wait_s)}{again}"
        return f"it is due for {span(-wait_s)} and queues behind earlier work{again}{nobody}"
    if view.state is State.DEAD:
        return f"it is dead: `redisched dead replay {view.id}` gives it new attempts"
    return f"it is gone: {view.outcome}"


def describe(view: JobView, why: str) -> list[str]:
    """A job for a human to read."""
    lines = [f"job       {view.id}", f"state     {view.state}", f"          {shown(why)}"]
    facts: list[tuple[str, object]] = [
        ("call", call_text(view.name, view.args) if view.name else None),
        ("tenant", view.tenant or None),
        ("priority", view.priority if view.priority != "normal" else None),
        ("key", view.key),
        ("asked for", iso(view.scheduled_at) if view.scheduled_at else None),
        ("runs at", iso(view.run_at) if view.run_at else None),
        ("died", iso(view.died_at) if view.died_at else None),
        ("attempts", _attempts(view) if view.max_attempts else None),
        ("progress", view.progress),
        ("fence", view.fence),
        ("payload", f"{view.payload_bytes:,} bytes" if view.payload_bytes else None),
    ]
    lines += [f"{name:<9} {shown(value)}" for name, value in facts if value is not None]
    return lines + (["runs"] if view.runs else []) + [line for run in view.runs for line in run_lines(run)]


def run_lines(run: Run) -> list[str]:
    """One run: a line, and its error below."""
    took = f" after {span(run.duration / timedelta(seconds=1))}" if run.duration is not None else ""
    lines = [f"  {run.attempt}. {run.outcome} {iso(run.ended_at)}{took} on {shown(run.worker)}"]
    return lines + [f"       {shown(line)}" for line in run.error.strip().splitlines()]


def call_text(name: str, args: Any) -> str:
    """`send_email('a@b.c', subject='x')`, of arguments as they are stored: a map, or [positional, named]."""
    positional, named = ([], args) if isinstance(args, dict) else (args, {})
    if isinstance(args, list) and len(args) == 2 and isinstance(args[0], list) and isinstance(args[1], dict):
        positional, named = args
    if not isinstance(positional, list):
        return f"{name}({positional})"
    return f"{name}({', '.join([*map(repr, positional), *(f'{k}={v!r}' for k, v in named.items())])})"


def _attempts(view: JobView) -> str:
    return f"{view.attempts} of {view.max_attempts}"


def _briefly(view: JobView, now: Any) -> str:
    if view.state is State.WAITING and view.run_at is not None:
        wait_s = (view.run_at - now).total_seconds()
        return f"in {span(wait_s)}" if wait_s > 0 else f"due for {span(-wait_s)}"
    if view.state is State.RUNNING:
        return f"on {view.worker}"
    if view.state is State.DEAD and view.died_at is not None:
        return f"{span(max(0.0, (now - view.died_at).total_seconds()))} ago: {last_line(view.error or '')}"[:100]
    return ""
