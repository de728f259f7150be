"""`redisched dead list|show|replay|purge`: the jobs that used up their attempts, and what becomes of them.

Long work goes in batches of 500, so no batch holds up the server; beyond the first, a line on stderr
says about every second how far it is. Interrupted, it leaves whole batches: run it again.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import AsyncIterator
from typing import Any

from redisched.cli.common import (
    add_json_option,
    add_store_options,
    iso,
    once,
    positive,
    print_json,
    print_table,
    say,
    shown,
)
from redisched.cli.jobs import call_text, run_lines
from redisched.client import Scheduler
from redisched.clock import mono_s
from redisched.errors import ConfigError, UnknownJob
from redisched.handles import last_line
from redisched.model import DeadLetter

BATCH = 500
TELL_S = 1.0


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser("dead", help="list, show, replay and purge dead letters", description=__doc__)
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    listing = verbs.add_parser("list", help="dead letters, the last one first")
    listing.add_argument("--limit", type=positive, default=50, metavar="N", help="default: 50")
    show = verbs.add_parser("show", help="one dead letter: its call, its error and its runs")
    show.add_argument("id", metavar="ID")
    replay = verbs.add_parser("replay", help="give dead letters new attempts, starting now")
    purge = verbs.add_parser("purge", help="remove dead letters for ever")
    for verb in (replay, purge):
        verb.add_argument("ids", metavar="ID", nargs="*", help="dead letters, by id")
        verb.add_argument("--all", action="store_true", help="all of them")
    purge.add_argument("--yes", action="store_true", help="do not ask")
    for verb, action in ((listing, run_list), (show, run_show), (replay, run_replay), (purge, run_purge)):
        verb.add_argument("--tenant", help="those of one tenant")
        if verb is not show:
            verb.add_argument("--job", metavar="NAME", help="those of one handler")
        add_store_options(verb)
        add_json_option(verb)
        verb.set_defaults(run=action)


def run_list(args: argparse.Namespace) -> int:
    async def work(sched: Scheduler) -> int:
        letters: list[DeadLetter] = []
        for shard in range(sched.store.shards):
            found = sched.inspector.dead(tenant=args.tenant, name=args.job, limit=args.limit, shard=shard)
            letters += [letter async for _, letter in found]
        letters.sort(key=lambda letter: letter.died_at, reverse=True)
        letters = letters[: args.limit]
        if args.json:
            print_json(letters)
            return 0
        rows = [(x.id, x.tenant, x.name, iso(x.died_at), x.attempts, last_line(x.error)[:80]) for x in letters]
        print_table(("id", "tenant", "name", "died", "attempts", "error"), rows, "no dead letters")
        if len(letters) == args.limit:
            print(f"the last {args.limit}; more with --limit")
        return 0

    return once(args, work)


def run_show(args: argparse.Namespace) -> int:
    async def work(sched: Scheduler) -> int:
        letter = await _letter(sched, args.id, args.tenant)
        if args.json:
            print_json(letter)
            return 0
        print(f"job       {letter.id}\ncall      {shown(call_text(letter.name, letter.args))}")
        print(f"tenant    {shown(letter.tenant)}\ndied      {iso(letter.died_at)}, attempts {letter.attempts}")
        print(f"reason    {shown(last_line(letter.error))}")
        for line in (line for run in letter.runs for line in run_lines(run)):
            print(line)
        return 0

    return once(args, work)


async def _letter(sched: Scheduler, job_id: str, tenant: str | None) -> DeadLetter:
    async for _, letter in sched.inspector.dead(tenant=tenant, limit=None):
        if letter.id == job_id:
            return letter
    raise UnknownJob(f"there is no dead letter {job_id}; `redisched jobs show {job_id}` tells where it is")


def run_replay(args: argparse.Namespace) -> int:
    _check_selection(args, "replay")
    return once(args, lambda sched: _go_through(sched, args, "replay", "replayed"))


def run_purge(args: argparse.Namespace) -> int:
    _check_selection(args, "purge")
    if not args.ids and not args.yes and not _agrees(args):
        return 1
    return once(args, lambda sched: _go_through(sched, args, "purge", "purged"))


def _check_selection(args: argparse.Namespace, verb: str) -> None:
    if not (args.ids or args.all or args.tenant or args.job):
        raise ConfigError(f"say which: `redisched dead {verb} ID...`, or --tenant T, --job NAME, or --all")
    if args.ids and (args.all or args.job):
        raise ConfigError("give ids, or --job and --all, not both")


def _agrees(args: argparse.Namespace) -> bool:
    if not sys.stdin.isatty():
        raise ConfigError("purge removes jobs for ever: add --yes, or name the ids")
    whose = f" of tenant {args.tenant}" if args.tenant else ""
    what = f" of job {args.job}" if args.job else ""
    print(shown(f"Remove all dead letters{what}{whose} for ever? [y/N] "), end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


async def _go_through(sched: Scheduler, args: argparse.Namespace, verb: str, done_word: str) -> int:
    change = sched.store.replay if verb == "replay" else sched.store.purge
    missing: list[str] = []
    batches = _named(sched, args, missing) if args.ids else _selected(sched, args)
    done, told_s = 0, mono_s()
    async for shard, ids in batches:
        if done and mono_s() - told_s >= TELL_S:
            say(f"{done_word} {done:,} so far")
            told_s = mono_s()
        done += await change(shard, ids)
    if args.json:
        print_json({done_word: done, "not_dead": missing})
    else:
        print(f"{done_word} {done:,} dead letter{'' if done == 1 else 's'}")
        for job_id in missing:
            say(f"not a dead letter: {shown(job_id)}")
    return 1 if missing else 0


async def _named(
    sched: Scheduler, args: argparse.Namespace, missing: list[str]
) -> AsyncIterator[tuple[int, list[str]]]:
    store = sched.store
    for job_id in dict.fromkeys(args.ids):
        shards = range(store.shards) if args.tenant is None else [store.keys.shard_of(args.tenant, job_id)]
        for shard in shards:
            if (await store.locate(shard, job_id))[0] == "dead":
                yield shard, [job_id]
                break
        else:
            missing.append(job_id)


async def _selected(sched: Scheduler, args: argparse.Namespace) -> AsyncIterator[tuple[int, list[str]]]:
    """Batches of one shard. The walk goes back in time: a replayed job that dies again is not met twice."""
    at = 0
    ids: list[str] = []
    async for shard, letter in sched.inspector.dead(tenant=args.tenant, name=args.job, limit=None):
        if ids and (shard != at or len(ids) == BATCH):
            yield at, ids
            ids = []
        at = shard
        ids.append(letter.id)
    if ids:
        yield at, ids
