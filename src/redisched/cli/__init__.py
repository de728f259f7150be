"""The `redisched` command. One file a command group; each has `add(subparsers)` and `run(args)`.

Reading commands print tables, or with `--json` one JSON document on stdout and nothing else.
Errors go to stderr as one line that says what to do; the exit code is 2 for a wrong call, 1 for
something that failed, 0 otherwise. No traceback reaches a user for anything expected.
"""

from __future__ import annotations

import argparse
import sys

from redisched.cli import cron, dead, dev, doctor, enqueue, jobs, scheduler, schedules, stats, worker
from redisched.cli.common import shown
from redisched.errors import ConfigError, InvalidCall, InvalidSchedule, RedischedError

GROUPS = (worker, scheduler, dev, enqueue, cron, schedules, jobs, dead, stats, doctor)


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="redisched", description="A distributed job scheduler that needs nothing but Redis."
    )
    top.add_argument("--version", action="version", version=f"redisched {_version()}")
    subparsers = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for group in GROUPS:
        group.add(subparsers)
    return top


def main(argv: list[str] | None = None) -> int:
    args = parser().parse_args(argv)
    try:
        return int(args.run(args))
    except (ConfigError, InvalidCall, InvalidSchedule) as error:
        return _refused(error, 2)
    except RedischedError as error:
        return _refused(error, 1)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # `redisched jobs list | head`: the reader has seen enough
        sys.stderr.close()
        return 0


def _refused(error: RedischedError, code: int) -> int:
    # It may quote a tenant's name. Its own lines stay: an application that fails to import has many.
    text = "\n".join(shown(line) for line in str(error).split("\n"))
    print(f"redisched: error: {text}", file=sys.stderr)
    return code


def _version() -> str:
    from importlib.metadata import version

    return version("redisched")
