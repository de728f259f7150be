"""`redisched doctor [--fix]`: is the server fit for jobs, and is every job in exactly one place?

Safe beside a running system. Ends with 1 when something is wrong and was not fixed.
"""

from __future__ import annotations

import argparse
from typing import Any

from redisched.cli.common import add_json_option, add_store_options, once, plain, print_json, say, shown
from redisched.client import Scheduler
from redisched.clock import mono_s
from redisched.doctor import Diagnosis, examine
from redisched.store.server import ServerReport

TELL_S = 1.0
LISTED = 50


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser("doctor", help="check the server and every job; --fix repairs", description=__doc__)
    parser.add_argument("--fix", action="store_true", help="repair what can be repaired; no job is removed")
    add_store_options(parser)
    add_json_option(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    async def work(sched: Scheduler) -> int:
        told_s = mono_s()

        def tell(text: str) -> None:
            nonlocal told_s
            if mono_s() - told_s >= TELL_S:
                say(text)
                told_s = mono_s()

        diagnosis = await examine(sched.store, fix=args.fix, tell=tell)
        if args.json:
            print_json({**plain(diagnosis), "remaining": diagnosis.remaining})
        else:
            show(diagnosis, fix=args.fix)
        return 1 if diagnosis.remaining else 0

    return once(args, work)


def show(diagnosis: Diagnosis, *, fix: bool) -> None:
    layout = f"version {diagnosis.layout}, {diagnosis.shards} shards, namespace {diagnosis.namespace}"
    for name, text in server_lines(diagnosis.server):
        print(f"{name:<12} {text}")
    print(f"{'layout':<12} {layout}")
    members = f"{len(diagnosis.members)}: {', '.join(diagnosis.members)}" if diagnosis.members else "none alive"
    print(f"{'members':<12} {shown(members)}")
    print(f"{'jobs':<12} {diagnosis.records:,} looked at in {diagnosis.took_s:.1f} s")
    for advice in diagnosis.advice:
        print(f"advice       {shown(advice)}")
    for finding in diagnosis.findings[:LISTED]:
        end = f" -> fixed: {finding.fixed}" if finding.fixed else ""
        print(f"wrong        {shown(finding.text)}{end}")
    total = diagnosis.counts.total()
    if total > LISTED:
        kinds = ", ".join(f"{kind} {count:,}" for kind, count in diagnosis.counts.most_common())
        print(f"wrong        ... {total:,} in all: {kinds}")
    if not total:
        print("all is well")
    elif fix:
        print(f"{total:,} found, {diagnosis.fixed:,} fixed, {diagnosis.remaining:,} remain")
    else:
        print(f"{total:,} found; `redisched doctor --fix` repairs what can be repaired")


def server_lines(server: ServerReport) -> list[tuple[str, str]]:
    """The server in words."""
    if server.kind == "in-memory":
        return [("server", server.promise)]
    fsync = f", fsync {server.fsync}" if server.appendonly and server.fsync else ""
    aof = {True: f"append-only file{fsync}", False: "no append-only file", None: "unknown"}[server.appendonly]
    limit = "unknown" if server.maxmemory is None else f"{server.maxmemory:,} bytes" if server.maxmemory else "no limit"
    replicas = "unknown" if server.replicas is None else str(server.replicas)
    least = "unknown" if server.min_replicas is None else str(server.min_replicas)
    return [
        ("server", f"{server.kind} {server.version or '(version unknown)'}" + _nodes(server)),
        ("persistence", aof),
        ("promise", server.promise),
        ("memory", f"{limit}, policy {server.eviction or 'unknown'}"),
        ("replicas", f"{replicas}, min-replicas-to-write {least}"),
        ("clock", f"{server.clock_ahead_ms:+,} ms to this machine's"),
    ]


def _nodes(server: ServerReport) -> str:
    return f", a cluster of {server.nodes} primaries" if server.nodes > 1 else ""
