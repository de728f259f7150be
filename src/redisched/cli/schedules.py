"""`redisched schedules list|show|create|pause|resume|trigger|backfill|delete|runs|prune`: what recurs, and when.

`create` also replaces: the same again changes nothing. What code declares (`@sched.cron(...)`) is put in place
again by every worker that starts; `prune` removes what the code declares no more.
"""

from __future__ import annotations

import argparse
import asyncio
import re
from collections.abc import Sequence
from typing import Any, Final

from redisched.cli import schedules_create
from redisched.cli.common import (
    add_json_option,
    add_store_options,
    iso,
    once,
    parse_moment,
    positive,
    print_json,
    print_table,
    say,
    shown,
)
from redisched.cli.schedules_show import describe, explain, next_times, rule_in_short, run_rows, until, without_dead
from redisched.client import Scheduler
from redisched.clock import from_ms, mono_s
from redisched.errors import ConfigError, UnknownSchedule
from redisched.host.application import load_application
from redisched.keys import DEFAULT_TENANT, decode_tenant, encode_tenant
from redisched.model import PlanView
from redisched.plan import plan_name
from redisched.plan.body import check_schedule_name
from redisched.plans import Backfill, Plan

LOOK_S: Final = 0.2
TELL_S: Final = 1.0
STUCK_S: Final = 5.0
LAST_RUNS: Final = 5
RUN_COLUMNS: Final = ("nominal", "outcome", "attempt", "started", "duration", "worker", "result bytes", "error")
_PLACE: Final = re.compile(r"[!-.0-~]+/[A-Za-z0-9_.:-]+")


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser("schedules", help="make, see and change what recurs", description=__doc__)
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    listing = verbs.add_parser("list", help="schedules in the order of their names, a page at a time")
    listing.add_argument("--after", metavar="NAME", help="go on after this one: the last one of the page before")
    listing.add_argument("--limit", type=positive, default=50, metavar="N", help="default: 50")
    _finish(listing, run_list, named=False)
    _finish(verbs.add_parser("show", help="all of one: why it does not fire now, its next times, its runs"), run_show)
    create = verbs.add_parser("create", help="create a schedule, or replace the one of that name")
    create.add_argument("name", metavar="NAME", help="the schedule's name")
    schedules_create.add_options(create)
    _finish(create, run_create, named=False)
    pause = verbs.add_parser("pause", help="make no more occurrences; what runs, runs on")
    pause.add_argument("--note", default="", metavar="TEXT", help="why; `show` tells it")
    _finish(pause, run_pause)
    _finish(verbs.add_parser("resume", help="go on after a pause; what fell into it follows --misfire"), run_resume)
    _finish(verbs.add_parser("trigger", help="make one occurrence now, and print its job's id"), run_trigger)
    backfill = verbs.add_parser("backfill", help="make the occurrences of a time that has passed")
    backfill.add_argument("--start", type=parse_moment, metavar="ISO", help="from this time: 2027-01-01T00:00:00Z")
    backfill.add_argument("--end", type=parse_moment, metavar="ISO", help="to this time")
    backfill.add_argument("--wait", action="store_true", help="return when all are made (not: run)")
    backfill.add_argument("--stop", action="store_true", help="end the one that is under way; what was made stays")
    _finish(backfill, run_backfill)
    _finish(verbs.add_parser("delete", help="remove a schedule and its history; what runs, runs on"), run_delete)
    runs = verbs.add_parser("runs", help="what became of its occurrences, the newest first")
    runs.add_argument("--limit", type=positive, default=20, metavar="N", help="default: 20")
    _finish(runs, run_runs)
    prune = verbs.add_parser("prune", help="list, or with --yes delete, what an application's code declares no more")
    prune.add_argument("app", metavar="APP", help="module:scheduler, as its workers are started: app:sched")
    prune.add_argument("--yes", action="store_true", help="delete them")
    _finish(prune, run_prune, named=False)


def _finish(verb: argparse.ArgumentParser, action: Any, *, named: bool = True) -> None:
    """What the verbs share. Those that read all tenants have none by default."""
    if named:
        verb.add_argument("name", metavar="NAME", help="the schedule's name")
    everyone = action in (run_list, run_prune)
    whose = "only those of one tenant" if everyone else "whose schedule it is; default: default"
    verb.add_argument("--tenant", default=None if everyone else DEFAULT_TENANT, help=whose)
    if action is run_prune:
        verb.add_argument("--url", help="another address than the application's own")
        verb.add_argument("--namespace", help="another namespace than the application's own")
    else:
        add_store_options(verb)
    add_json_option(verb)
    verb.set_defaults(run=action)


def _plan(sched: Scheduler, args: argparse.Namespace) -> Plan:
    encode_tenant(args.tenant)
    return sched.get_plan(args.name, args.tenant)


def _facts(args: argparse.Namespace, **more: object) -> dict[str, object]:
    return {"name": args.name, "tenant": args.tenant, **more}


def _whose(tenant: str) -> str:
    return "" if tenant == DEFAULT_TENANT else f" of tenant {tenant}"


def _answer(args: argparse.Namespace, text: str, **facts: object) -> int:
    if args.json:
        print_json(_facts(args, **facts))
    else:
        print(shown(text))
    return 0


# -- reading


def run_list(args: argparse.Namespace) -> int:
    if args.tenant is not None:
        encode_tenant(args.tenant)
        if args.after is not None:
            check_schedule_name(args.after)
    elif args.after is not None and not _PLACE.fullmatch(args.after):
        raise ConfigError("--after is TENANT/NAME, as the page before said it; or add --tenant and give NAME alone")

    async def work(sched: Scheduler) -> int:
        found = await sched.plans(args.tenant, after=args.after or "", limit=args.limit + 1)
        views, following = found[: args.limit], None
        if len(found) > args.limit:
            following = _place(views[-1], args.tenant)
        if args.json:
            print_json({"schedules": views, "next": following})
            return 0
        now = from_ms(await sched.inspector.now_ms())
        rows = [(v.name, v.tenant, v.state, *until(v, now), v.call, rule_in_short(v.rule)) for v in views]
        print_table(("name", "tenant", "state", "next", "at", "call", "rule"), rows, "no such schedules")
        if following is not None:
            print(f"more: the same with --after {shown(following)}")
        return 0

    return once(args, work)


def _place(view: PlanView, tenant: str | None) -> str:
    """What `--after` takes: the name, or with all tenants in the list the store's own name of it."""
    if tenant is not None:
        return view.name
    if view.state == "broken":
        # Nothing tells its tenant but that name: it is still encoded, or a hash.
        part = view.tenant if view.tenant.startswith("!") else encode_tenant(decode_tenant(view.tenant))
        return f"{part}/{view.name}"
    return plan_name(view.tenant, view.name)


def run_show(args: argparse.Namespace) -> int:
    async def work(sched: Scheduler) -> int:
        plan = _plan(sched, args)
        view = await without_dead(sched, await plan.view())
        stats = await sched.stats()
        why = explain(view, stats.at, alive=bool(stats.members))
        broken = view.state == "broken"
        times = [] if broken else await next_times(plan, view)
        runs = [] if broken else await plan.runs(LAST_RUNS)
        if args.json:
            facts = {field: getattr(view, field) for field in view.__slots__}
            print_json({**facts, "explanation": why, "next_times": times, "runs": runs})
            return 0
        print("\n".join(describe(view, why, times)))
        if runs:
            print("\nlast runs")
            print_table(RUN_COLUMNS, run_rows(runs), "")
        return 0

    return once(args, work)


def run_runs(args: argparse.Namespace) -> int:
    async def work(sched: Scheduler) -> int:
        runs = await _plan(sched, args).runs(args.limit)
        if args.json:
            print_json(runs)
            return 0
        print_table(RUN_COLUMNS, run_rows(runs), "no runs yet")
        if len(runs) == args.limit:
            print(f"the last {args.limit}; more with --limit")
        return 0

    return once(args, work)


# -- changing


def run_create(args: argparse.Namespace) -> int:
    encode_tenant(args.tenant)
    call, rule, options = schedules_create.wanted(args)

    async def work(sched: Scheduler) -> int:
        before = await _seen(sched.get_plan(args.name, args.tenant))
        plan = await sched.schedule(args.name, call, rule, tenant=args.tenant, **options)
        view = await plan.view()
        known = before.version if before is not None else 0
        if before is not None and before.state != "broken" and plan.version == known:
            word = "unchanged"
        else:
            word = "created" if before is None and plan.version == 1 else "replaced"
        if word == "replaced" and before is not None and before.origin:
            say(shown(f"{before.origin} declares it in code: its workers put theirs back when they start"))
        next_at = iso(view.next_at) if view.next_at else "not known yet"
        paused = "; it is paused" if view.state == "paused" else ""
        text = f"{word} schedule {args.name}{_whose(args.tenant)}, version {plan.version}; next {next_at}{paused}"
        return _answer(args, text, result=word, version=plan.version, state=view.state, next_at=view.next_at)

    return once(args, work)


async def _seen(plan: Plan) -> PlanView | None:
    try:
        return await plan.view()
    except UnknownSchedule:
        return None


def run_pause(args: argparse.Namespace) -> int:
    async def work(sched: Scheduler) -> int:
        plan = _plan(sched, args)
        before = await plan.view()
        await plan.pause(schedules_create.text("--note", args.note))
        changed = plan.version != before.version
        word = "paused" if before.state != "paused" else "changed the note of" if changed else "paused already:"
        text = f"{word} schedule {args.name}{_whose(args.tenant)}, version {plan.version}"
        return _answer(args, text, state="paused", changed=changed, version=plan.version)

    return once(args, work)


def run_resume(args: argparse.Namespace) -> int:
    async def work(sched: Scheduler) -> int:
        plan = _plan(sched, args)
        before = await plan.view()
        await plan.resume()
        after = await plan.view()
        changed = plan.version != before.version
        word = "resumed" if changed else "not paused:"
        text = f"{word} schedule {args.name}{_whose(args.tenant)}, version {plan.version}"
        return _answer(args, text, state=after.state, changed=changed, version=plan.version, next_at=after.next_at)

    return once(args, work)


def run_trigger(args: argparse.Namespace) -> int:
    async def work(sched: Scheduler) -> int:
        job = await _plan(sched, args).trigger()
        return _answer(args, job.id, id=job.id, call=job.name)

    return once(args, work)


def run_delete(args: argparse.Namespace) -> int:
    async def work(sched: Scheduler) -> int:
        plan = _plan(sched, args)
        before = await plan.view()
        deleted = await plan.delete()
        if before.origin:
            say(shown(f"{before.origin} declares it in code: its workers put it back when they start"))
        text = f"deleted schedule {args.name}{_whose(args.tenant)} and its history; what runs, runs on"
        return _answer(args, text, deleted=deleted)

    return once(args, work)


# -- backfill


def run_backfill(args: argparse.Namespace) -> int:
    if args.stop and (args.start or args.end or args.wait):
        raise ConfigError("--stop ends the backfill that is under way: it goes with no other option")
    if not args.stop and not (args.start and args.end):
        raise ConfigError("say which times: --start ISO --end ISO, such as 2027-01-01T00:00:00Z; or --stop")

    async def work(sched: Scheduler) -> int:
        plan = _plan(sched, args)
        if args.stop:
            view = await plan.view()
            stopped = await sched.book.stop_backfill(args.name, args.tenant)
            made = view.backfill.made if view.backfill is not None else 0
            words = f"stopped after {made:,} were made" if stopped else "none is under way"
            _answer(args, f"backfill of {args.name}: {words}", stopped=stopped)
            return 0 if stopped else 1
        backfill = await plan.backfill(args.start, args.end)
        count = "1 occurrence" if backfill.total == 1 else f"{backfill.total:,} occurrences"
        if args.wait:
            await _wait(sched, backfill)
            text = f"backfill of {args.name} has ended: {count} from {iso(args.start)} to {iso(args.end)}"
        else:
            hint = "`redisched schedules show` tells how far it is"
            text = f"backfill of {args.name} began: {count} from {iso(args.start)} to {iso(args.end)}; {hint}"
        return _answer(args, text, total=backfill.total, ended=args.wait)

    return once(args, work)


async def _wait(sched: Scheduler, backfill: Backfill) -> None:
    """Until all are made, or somebody stopped it. Says about every second how far it is, and when nobody is there."""
    made, told, told_s, moved_s, warned = 0, -1, 0.0, mono_s(), False
    while (view := await backfill.view()) is not None:
        if view.made != made:
            made, moved_s = view.made, mono_s()
        if made != told and mono_s() - told_s >= TELL_S:
            say(f"made {made:,} of {view.total:,}")
            told, told_s = made, mono_s()
        if not warned and mono_s() - moved_s >= STUCK_S and not (await sched.stats()).members:
            say("no worker or scheduler is alive: start one with `redisched worker app:sched`")
            warned = True
        await asyncio.sleep(LOOK_S)


# -- what code declares no more


def run_prune(args: argparse.Namespace) -> int:
    if args.tenant is not None:
        encode_tenant(args.tenant)
    app = load_application(args.app)
    # The application says what it declares; nothing of it is opened or put in place here.
    args.url = args.url or app.store_settings.url
    args.namespace = args.namespace or app.store_settings.namespace
    declared = app.declared_schedules

    async def work(sched: Scheduler) -> int:
        gone = await _undeclared(sched, args, declared)
        if args.yes:
            for view in gone:
                await sched.book.delete(view.name, view.tenant)
            left = await sched.book.undeclared(args.app, declared)
            await sched.book.note_declared(args.app, [*declared, *left])
        if args.json:
            named = [{"name": view.name, "tenant": view.tenant} for view in gone]
            print_json({"app": args.app, "undeclared": named, "deleted": bool(args.yes)})
            return 0
        rows = [(v.name, v.tenant, v.state, v.call, rule_in_short(v.rule)) for v in gone]
        nothing = f"nothing to prune: {args.app} still declares what its workers put in place under that name"
        print_table(("name", "tenant", "state", "call", "rule"), rows, shown(nothing))
        if gone:
            count = "1 schedule" if len(gone) == 1 else f"{len(gone):,} schedules"
            print(f"deleted {count}" if args.yes else f"{count} to delete: the same with --yes does so")
        return 0

    return once(args, work)


async def _undeclared(
    sched: Scheduler, args: argparse.Namespace, declared: Sequence[tuple[str, str]]
) -> list[PlanView]:
    """Those that the code declares no more, and that nobody has replaced by hand since."""
    gone: list[PlanView] = []
    for tenant, name in await sched.book.undeclared(args.app, declared):
        if args.tenant in (None, tenant):
            view = await _seen(sched.get_plan(name, tenant))
            if view is not None:
                gone.append(view)
    return gone
