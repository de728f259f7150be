"""The runner. `python -m benchmarks drain latency recovery --json results.json`."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import inspect
import json
import sys
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.harness import Bench, environment


def names() -> list[str]:
    folder = Path(__file__).parent / "scenarios"
    return sorted(path.stem for path in folder.glob("*.py") if path.stem != "__init__")


async def measure(scenario: str, server: str) -> dict[str, Any]:
    """One scenario on a server of its own."""
    module = importlib.import_module(f"benchmarks.scenarios.{scenario}")
    if not inspect.signature(module.run).parameters:
        return {"scenario": scenario, "figures": module.run()}  # pure: needs no server
    with Bench(server) as bench:
        figures = await module.run(bench)
        async with bench.scheduler() as sched:
            return {"scenario": scenario, "environment": await environment(sched), "figures": figures}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("scenarios", nargs="+", choices=[*names(), "all"], metavar="SCENARIO", help=", ".join(names()))
    parser.add_argument(
        "--server", default="embedded", help="embedded (default), redis, or an address (its data is used!)"
    )
    parser.add_argument("--json", metavar="FILE", help="write the results there as well")
    args = parser.parse_args()
    results = []
    for scenario in names() if "all" in args.scenarios else args.scenarios:
        print(f"{scenario}: running ...", file=sys.stderr, flush=True)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            results.append(runner.run(measure(scenario, args.server)))
        print(json.dumps(results[-1], indent=2), flush=True)
    if args.json:
        Path(args.json).write_text(json.dumps(results, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
