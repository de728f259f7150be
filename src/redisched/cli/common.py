"""What the command groups share: options, opening a scheduler, loading an application, printing."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import logging
import re
import sys
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

import uvloop

from redisched.client import Scheduler

T = TypeVar("T")


def add_store_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--url", help="the server's address; default $REDISCHED_URL, without it the embedded server")
    parser.add_argument("--namespace", default="rs", help="default: rs")


def add_json_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout, nothing else")


def add_log_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--log-level", default="INFO", choices=["DEBUG", "INFO", "WARNING", "ERROR"], help="default: INFO"
    )
    parser.add_argument("--log-style", default="text", choices=["text", "json"], help="a line of text or a JSON object")


def run_async(main: Callable[[], Awaitable[T]]) -> T:
    """Runs a command's coroutine on uvloop."""

    async def body() -> T:
        return await main()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(body())


def with_scheduler(args: argparse.Namespace, work: Callable[[Scheduler], Awaitable[int]]) -> int:
    """Opens a scheduler at --url, without application code, and runs `work` with it."""

    async def body() -> int:
        async with Scheduler(args.url, namespace=args.namespace, timeout=5.0, allow_eviction=True) as sched:
            return await work(sched)

    return run_async(body)


def once(args: argparse.Namespace, work: Callable[[Scheduler], Awaitable[int]]) -> int:
    """`with_scheduler` for a command that does one thing and ends: it says itself what went wrong."""
    logging.getLogger("redisched").setLevel(logging.ERROR)
    return with_scheduler(args, work)


def plain(value: Any) -> Any:
    """A value as JSON can say it: dataclasses as objects, times as ISO-8601 in UTC, durations as seconds."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, datetime):
        return iso(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, str | int | float | bool) or value is None:
        return value
    return str(value)


def iso(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def print_json(value: Any) -> None:
    print(json.dumps(plain(value), ensure_ascii=False, indent=2))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], empty: str) -> None:
    """Columns as wide as their content; numbers to the right."""
    if not rows:
        print(empty)
        return
    texts = [[shown(cell) for cell in row] for row in rows]
    widths = [max(len(columns[i]), *(len(row[i]) for row in texts)) for i in range(len(columns))]
    print("  ".join(name.ljust(width) for name, width in zip(columns, widths, strict=True)).rstrip())
    for row, raw in zip(texts, rows, strict=True):
        cells = [
            text.rjust(width) if isinstance(cell, int | float) else text.ljust(width)
            for text, width, cell in zip(row, widths, raw, strict=True)
        ]
        print("  ".join(cells).rstrip())


def shown(value: object) -> str:
    """Text for a terminal: a tenant's name or an error cannot move the cursor or begin a line."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]", lambda m: json.dumps(m[0])[1:-1], str(value))


def say(text: str) -> None:
    """A line for the person who waits: on stderr, so that stdout stays clean."""
    print(text, file=sys.stderr, flush=True)


def span(seconds: float) -> str:
    """`12 ms`, `3.4 s`, `4 min 12 s`, `2 h 5 min`, `3 d 4 h`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    for size, unit, small, name in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit} {int(seconds % size // small)} {name}"
    raise AssertionError(seconds)


def positive(text: str) -> int:
    """A count, for argparse."""
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 1_000_000):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to 1,000,000")
    return int(text)


def parse_moment(text: str) -> datetime:
    """An ISO-8601 time with a zone, for argparse."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not ISO-8601, such as 2027-01-01T09:00:00Z") from None
    if moment.tzinfo is None:
        raise argparse.ArgumentTypeError(f"{text!r} has no time zone, as 2027-01-01T09:00:00Z has")
    return moment


def parse_delay(text: str) -> timedelta:
    """90, 90s, 5m, 2h, 3d, for argparse."""
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    number, unit = (text[:-1], text[-1]) if text[-1:] in units else (text, "s")
    try:
        return timedelta(seconds=float(number) * units[unit])
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"{text!r} is no delay, such as 90, 90s, 5m, 2h or 3d") from None
