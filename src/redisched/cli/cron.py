"""`redisched cron EXPR`: what an expression means, and when it fires next. Floor 8. It asks no server."""

from __future__ import annotations

import argparse
import json
import sys
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from redisched.cron import Cron
from redisched.cron.rule import seconds
from redisched.cron.zones import zone
from redisched.errors import InvalidSchedule

MAX_COUNT = 10_000


def add(subparsers: Any) -> None:
    """Adds the command to `redisched`'s parser."""
    parser = subparsers.add_parser(
        "cron",
        help="explain a cron expression and list its next fire times",
        description="Explains a cron expression and lists its next fire times.",
    )
    parser.add_argument("expr", metavar="EXPR", help="an expression such as '0 9 * * 1', or @daily")
    parser.add_argument("--tz", default="UTC", metavar="ZONE", help="an IANA time zone (default: UTC)")
    parser.add_argument("--after", metavar="ISO", help="list times after this instant (default: now)")
    parser.add_argument("--count", default="5", metavar="N", help="how many times to list (default: 5)")
    parser.add_argument("--seconds", action="store_true", help="six fields, seconds first")
    parser.add_argument("--json", action="store_true", help="print a JSON list of instants in UTC")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Prints the answer; 0, or 2 when an argument makes no sense."""
    try:
        cron = Cron(args.expr, tz=args.tz, seconds=args.seconds)
        times = cron.preview(_after(args.after), _count(args.count))
    except InvalidSchedule as error:
        print(f"redisched: error: {error}", file=sys.stderr)
        return 2
    if args.json:
        print(json.dumps([_utc(at) for at in times]))
    else:
        print(cron.describe())
        print()
        print("\n".join(_table(cron, times)))
    return 0


def _after(text: str | None) -> datetime:
    if text is None:
        return datetime.now(UTC)
    try:
        after = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidSchedule(f"--after {text!r} is not a time such as 2026-03-01T00:00:00Z") from None
    if after.tzinfo is None:
        raise InvalidSchedule(f"--after {text!r} has no time zone: add Z, or an offset such as +01:00")
    return after


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 9 and 1 <= int(text) <= MAX_COUNT):
        raise InvalidSchedule(f"--count {text!r} is not a number from 1 to {MAX_COUNT:,}")
    return int(text)


def _utc(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ") if at.year >= 1000 else at.isoformat().replace("+00:00", "Z")


def _table(cron: Cron, times: list[datetime]) -> list[str]:
    if not times:
        return ["It does not fire any more."]
    rows = [(f"local time ({cron.tz})", "UTC")]
    place = zone(cron.tz)
    for at in times:
        offset = timezone(timedelta(seconds=place.offset_at(seconds(at))))
        try:
            local = at.astimezone(offset)
        except OverflowError:
            local = at
        rows.append((f"{local:%a} {local.isoformat(sep=' ')}", _utc(at)))
    width = max(len(row[0]) for row in rows)
    return [f"{left:<{width}}  {right}" for left, right in rows]
