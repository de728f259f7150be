"""`redisched stats`: what waits, is ready, runs and is dead, for each tenant; how late and how fast it is."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

from redisched.cli.common import (
    add_json_option,
    add_store_options,
    iso,
    once,
    plain,
    print_json,
    print_table,
    shown,
    span,
)
from redisched.client import Scheduler
from redisched.model import Stats

COUNTED = ("waiting", "ready", "running", "dead")


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser("stats", help="what waits, runs and is dead, for each tenant", description=__doc__)
    parser.add_argument("--tenant", help="only this one")
    add_store_options(parser)
    add_json_option(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    async def work(sched: Scheduler) -> int:
        stats = await sched.stats()
        if args.tenant is not None:
            stats = replace(stats, tenants=tuple(t for t in stats.tenants if t.tenant == args.tenant))
        if args.json:
            print_json({**plain(stats), "sum": summed(stats)})
        else:
            show(stats)
        return 0

    return once(args, work)


def summed(stats: Stats) -> dict[str, Any]:
    """All tenants of the answer together."""
    return {
        **{what: stats.total(what) for what in COUNTED},
        "lag_ms": max((t.lag_ms for t in stats.tenants), default=0),
        "done_per_s": round(stats.total("done_per_s"), 2),
    }


def show(stats: Stats) -> None:
    rows = [
        (t.tenant, t.waiting, t.ready, t.running, t.dead, span(t.lag_ms / 1000), t.done_per_s) for t in stats.tenants
    ]
    if len(rows) > 1:
        all_of = summed(stats)
        counts = [all_of[what] for what in COUNTED]
        rows.append(("(all)", *counts, span(all_of["lag_ms"] / 1000), all_of["done_per_s"]))
    print_table(("tenant", *COUNTED, "lag", "done/s"), rows, "no tenant has work")
    print()
    if stats.next_due is not None:
        wait_s = (stats.next_due - stats.at).total_seconds()
        print(f"next due  {iso(stats.next_due)}, " + (f"in {span(wait_s)}" if wait_s > 0 else "now"))
    print(f"schedules {_schedules(stats)}")
    print(
        f"members   {len(stats.members)}: {shown(', '.join(stats.members))}"
        if stats.members
        else "members   none alive"
    )
    since = ", ".join(f"{name} {count:,}" for name, count in sorted(stats.totals.items()) if count)
    print(f"totals    {since or 'nothing yet'}")
    print(f"shards    {stats.shards}")


def _schedules(stats: Stats) -> str:
    """Of all tenants: how many there are, how many of them may fire, and when the first does."""
    if not stats.schedules:
        return "none"
    words = f"{stats.schedules:,}, of these {stats.schedules_enabled:,} enabled"
    if stats.next_schedule is None:
        return words
    wait_s = (stats.next_schedule - stats.at).total_seconds()
    return f"{words}; next {iso(stats.next_schedule)}, " + (f"in {span(wait_s)}" if wait_s > 0 else "now")
