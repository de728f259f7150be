"""`redisched dev app:sched`: everything on a laptop in one command; starts again when a file changes.

Runs `redisched worker` as a child, on the embedded server unless an address is given, and looks at
the .py and .toml files below this folder twice a second. Holds a share of the embedded server itself, so
that the data's server does not stop and start with every reload.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from redisched import logs
from redisched.cli.worker import add_worker_options
from redisched.embedded import EmbeddedServer

LOOK_S = 0.5
_SKIPPED = {".venv", "venv", "node_modules", "__pycache__", ".git", ".hypothesis", ".mypy_cache", ".ruff_cache"}


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    p = subparsers.add_parser("dev", help="server, scheduler and worker in one, with reload", description=__doc__)
    add_worker_options(p)
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    logs.setup(args.log_level, args.log_style)
    address = args.url or os.environ.get("REDISCHED_URL")
    server = None
    if not address:
        server = EmbeddedServer()
        address = server.start()
        print(f"redisched dev: embedded server at {address}", file=sys.stderr)
    command = [sys.executable, "-m", "redisched", "worker", args.app, *_passed_on(args)]
    environment = {**os.environ, "REDISCHED_URL": address}
    if args.url:
        command += ["--url", args.url]
    try:
        return _reload_for_ever(command, environment, server)
    finally:
        if server is not None:
            server.stop()


def _passed_on(args: argparse.Namespace) -> list[str]:
    options = ["--processes", args.processes, "--concurrency", args.concurrency, "--lease", args.lease]
    options += [
        "--grace",
        min(args.grace, 2.0),
        "--cancel-grace",
        args.cancel_grace,
        "--log-level",
        args.log_level,
        "--log-style",
        args.log_style,
    ]
    if args.no_scheduler:
        options.append("--no-scheduler")
    return [str(option) for option in options]


def _reload_for_ever(command: list[str], environment: dict[str, str], server: EmbeddedServer | None) -> int:
    # SIGTERM ends this as Ctrl-C does: the worker is told and waited for.
    signal.signal(signal.SIGTERM, _interrupt)
    while True:
        seen = _snapshot(Path.cwd())
        worker = subprocess.Popen(command, env=environment)
        try:
            while (now := _snapshot(Path.cwd())) == seen:
                if server is not None and server.pid is None:
                    print("redisched dev: the embedded server died, starting it again", file=sys.stderr)
                    server.start()
                if worker.poll() is not None:
                    print("redisched dev: the worker ended; waiting for a change", file=sys.stderr)
                    _wait_for_change(seen)
                    break
                time.sleep(LOOK_S)
            else:
                changed = sorted(p for p in now.keys() | seen.keys() if now.get(p) != seen.get(p))
                print(f"redisched dev: {', '.join(changed[:3])} changed, starting again", file=sys.stderr)
        except KeyboardInterrupt:
            _end(worker)
            return 0
        _end(worker)


def _wait_for_change(seen: dict[str, int]) -> None:
    while _snapshot(Path.cwd()) == seen:
        time.sleep(LOOK_S)


def _end(worker: subprocess.Popen[bytes]) -> None:
    if worker.poll() is None:
        worker.send_signal(signal.SIGTERM)
    worker.wait()


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _snapshot(root: Path) -> dict[str, int]:
    """Every source file below `root` and when it was written."""
    found: dict[str, int] = {}
    for folder, names, files in os.walk(root):
        names[:] = [n for n in names if n not in _SKIPPED and not n.startswith(".")]
        for file in files:
            if file.endswith((".py", ".toml")):
                path = os.path.join(folder, file)
                try:
                    found[os.path.relpath(path, root)] = os.stat(path).st_mtime_ns
                except FileNotFoundError:
                    pass  # an editor just replaced it; the next look sees it
    return found
