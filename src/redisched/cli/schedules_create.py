"""The options of `redisched schedules create`, and the schedule they ask for."""

from __future__ import annotations

import argparse
from datetime import datetime, timedelta
from typing import Any, Final, TypedDict

from redisched.cli.common import parse_delay, parse_moment, positive
from redisched.cli.enqueue import parse_call
from redisched.cron import Cron, Every, RRule
from redisched.errors import ConfigError, InvalidSchedule
from redisched.keys import PRIORITIES
from redisched.model import Priority
from redisched.policy import Misfire, Overlap
from redisched.recurring import DEFAULT_GRACE
from redisched.registry import Call

# What Python's errors ask for, as the command line spells it.
_SPELLED_HERE: Final = {"give dtstart": "with --start ISO", "seconds=True": "--seconds"}


class Options(TypedDict):
    misfire: Misfire
    grace: timedelta
    overlap: Overlap
    jitter: timedelta
    idempotency_key: str | None
    priority: Priority
    if_version: int | None


class Bounds(TypedDict):
    start: datetime | None
    end: datetime | None
    max_runs: int | None


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("handler", metavar="HANDLER", help="the handler's name, for example send_email")
    parser.add_argument(
        "arguments",
        metavar="ARGS-JSON",
        nargs="?",
        default="{}",
        help="""named arguments, '{"to": "a@b.c"}', or positional ones, '["a@b.c"]'""",
    )
    when = parser.add_argument_group("when (one of --cron, --every, --rrule)")
    kind = when.add_mutually_exclusive_group(required=True)
    kind.add_argument("--cron", metavar="EXPR", help="an expression such as '0 9 * * 1', or @daily")
    kind.add_argument("--every", type=parse_delay, metavar="TIME", help="so often: 90s, 10m, 2h or 3d")
    kind.add_argument("--rrule", metavar="RULE", help="RFC 5545: 'FREQ=MONTHLY;BYDAY=-1FR;BYHOUR=17'")
    when.add_argument("--tz", metavar="ZONE", help="with --cron, --rrule: an IANA time zone; default: UTC")
    when.add_argument("--seconds", action="store_true", help="with --cron: six fields, seconds first")
    when.add_argument("--after-completion", action="store_true", help="with --every: count from the end of each run")
    when.add_argument("--start", type=parse_moment, metavar="ISO", help="not before; --rrule counts from it")
    when.add_argument("--end", type=parse_moment, metavar="ISO", help="not after")
    when.add_argument("--max-runs", type=positive, metavar="N", help="so many occurrences in all")
    how = parser.add_argument_group("how")
    how.add_argument("--misfire", default="once", metavar="POLICY", help="of missed ones: skip, once or all:24")
    how.add_argument(
        "--grace", type=parse_delay, default=DEFAULT_GRACE, metavar="TIME", help="how old they may be; default: 1h"
    )
    how.add_argument(
        "--overlap", default="skip", metavar="POLICY", help="while one runs: skip, allow, allow:3, queue or cancel"
    )
    how.add_argument(
        "--jitter", type=parse_delay, default=timedelta(0), metavar="TIME", help="spread starts by up to so much"
    )
    how.add_argument("--idempotency-key", metavar="TEMPLATE", help="such as 'report-{week}'; default: the job's id")
    how.add_argument("--priority", choices=PRIORITIES, default="normal", help="default: normal")
    how.add_argument("--if-version", type=version, metavar="N", help="only if it is at this version; 0: only if new")


def wanted(args: argparse.Namespace) -> tuple[Call[Any], Cron | Every | RRule, Options]:
    """What the command line asks for. All that can be wrong without a server is found here."""
    options = Options(
        misfire=Misfire.parse(args.misfire),
        grace=args.grace,
        overlap=Overlap.parse(args.overlap),
        jitter=args.jitter,
        idempotency_key=None if args.idempotency_key is None else text("--idempotency-key", args.idempotency_key),
        priority=args.priority,
        if_version=args.if_version,
    )
    return parse_call(args.handler, args.arguments), _rule(args), options


def _rule(args: argparse.Namespace) -> Cron | Every | RRule:
    if args.tz is not None and args.every is not None:
        raise ConfigError("--tz goes with --cron or --rrule: an interval is the same in every zone")
    if args.seconds and args.cron is None:
        raise ConfigError("--seconds goes with --cron: the expression has six fields, seconds first")
    if args.after_completion and args.every is None:
        raise ConfigError("--after-completion goes with --every: it counts an interval from the end of each run")
    bounds = Bounds(start=args.start, end=args.end, max_runs=args.max_runs)
    zone = "UTC" if args.tz is None else args.tz
    try:
        if args.cron is not None:
            return Cron(args.cron, zone, seconds=args.seconds, **bounds)
        if args.every is not None:
            return Every(args.every, after="completion" if args.after_completion else "dispatch", **bounds)
        return RRule(args.rrule, tz=zone, **bounds)
    except InvalidSchedule as error:
        said = str(error)
        hints = [f", here {option}" for word, option in _SPELLED_HERE.items() if said.endswith(word)]
        raise InvalidSchedule(said + "".join(hints)) from None


def text(option: str, given: str) -> str:
    """Bytes that were no characters reach us as halves of surrogate pairs, which nothing can store."""
    try:
        given.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{option} {given!r:.80} is not UTF-8") from None
    return given


def version(given: str) -> int:
    """A schedule's version, for argparse."""
    if not (given.isascii() and given.isdigit() and len(given) <= 15):
        raise argparse.ArgumentTypeError(f"{given!r} is no version: a number as `schedules show` tells it, or 0")
    return int(given)
