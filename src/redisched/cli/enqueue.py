"""`redisched enqueue NAME [ARGS-JSON]`: stores a job by its handler's name; imports no application."""

from __future__ import annotations

import argparse
import json
from typing import Any

from redisched.cli.common import (
    add_json_option,
    add_store_options,
    once,
    parse_delay,
    parse_moment,
    print_json,
)
from redisched.client import Scheduler
from redisched.errors import InvalidCall
from redisched.keys import DEFAULT_TENANT, PRIORITIES
from redisched.registry import Call


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "enqueue",
        help="store a job by its handler's name",
        description="Stores a job by its handler's name and prints the job's id.",
    )
    parser.add_argument("name", metavar="NAME", help="the handler's name, for example send_email")
    parser.add_argument(
        "arguments",
        metavar="ARGS-JSON",
        nargs="?",
        default="{}",
        help="""named arguments, '{"to": "a@b.c"}', or positional ones, '["a@b.c"]'""",
    )
    parser.add_argument("--tenant", default=DEFAULT_TENANT, help="whom the job belongs to; default: default")
    when = parser.add_mutually_exclusive_group()
    when.add_argument("--at", type=parse_moment, metavar="ISO", help="run at this time: 2027-01-01T09:00:00Z")
    when.add_argument("--delay", type=parse_delay, help="run after so long: 90, 90s, 5m, 2h or 3d")
    parser.add_argument("--key", help="the same key, while its job lives, gives the same job back")
    parser.add_argument("--priority", choices=PRIORITIES, default="normal", help="default: normal")
    add_store_options(parser)
    add_json_option(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    call = parse_call(args.name, args.arguments)

    async def work(sched: Scheduler) -> int:
        job = await sched.enqueue(
            call, at=args.at, delay=args.delay, tenant=args.tenant, key=args.key, priority=args.priority
        )
        if args.json:
            print_json({"id": job.id, "tenant": job.tenant, "name": job.name, "created": job.created})
        else:
            print(job.id)
        return 0

    return once(args, work)


def parse_call(name: str, text: str) -> Call[Any]:
    """A call from the command line. The error names the position, and shows it."""
    try:
        arguments = json.loads(text, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        near = text[max(0, error.pos - 20) : error.pos + 20]
        raise InvalidCall(
            f"ARGS-JSON is not JSON: {error.msg} at character {error.pos + 1}, near {near!r}; "
            f"""for example '{{"to": "a@b.c"}}' or '["a@b.c"]'"""
        ) from None
    except RecursionError:
        raise InvalidCall("ARGS-JSON is nested too deeply") from None
    if isinstance(arguments, dict):
        return Call(name, **arguments)
    if isinstance(arguments, list):
        return Call(name, *arguments)
    raise InvalidCall(f"ARGS-JSON is an object of named or an array of positional arguments, not {text[:40]}")


def _refuse(word: str) -> Any:
    raise InvalidCall(f"ARGS-JSON holds {word}, which JSON does not have")
