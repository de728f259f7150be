"""The files around the code: versions, containers, benchmarks. Tries to find one that would not start."""

from __future__ import annotations

import importlib
import inspect
import re
import shlex
import tomllib
from typing import Any

import pytest
import yaml
from benchmarks.__main__ import names as scenarios

from redisched import cli
from tests.house import ROOT

CONSTRAINTS = [
    line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.strip() and not line.startswith("#")
]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]


def plain(requirement: str) -> str:
    """The name of a requirement, as indexes compare names."""
    return re.sub(r"[-_.]+", "-", re.split(r"[\[<>=!~; ]", requirement)[0]).lower()


@pytest.mark.parametrize("line", CONSTRAINTS)
def test_a_version_is_pinned_and_has_no_address(line: str) -> None:
    # A range is another version tomorrow, and an address another package.
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9.+!]+", line)


def test_every_requirement_is_pinned_once() -> None:
    # What is not pinned is whatever came out this morning.
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *(r for group in project["optional-dependencies"].values() for r in group)]
    pinned = [plain(line) for line in CONSTRAINTS]
    assert {plain(r) for r in wanted} - {"redisched"} <= set(pinned)
    assert len(set(pinned)) == len(pinned)


def words(service: dict[str, Any]) -> list[str]:
    command = service["command"]
    return shlex.split(command) if isinstance(command, str) else [str(word) for word in command]


def redisched_words(service: dict[str, Any]) -> list[str] | None:
    """The arguments of the `redisched` command that a service runs in the end."""
    script = words(service)
    if script[:2] == ["sh", "-c"]:
        script = shlex.split(script[2].rpartition("&&")[2])
    if script[:1] == ["exec"]:
        script = script[1:]
    # $$APP: compose leaves $APP for the shell
    return [re.sub(r"\$\$?\{?APP\}?", "app:sched", word) for word in script[1:]] if script[0] == "redisched" else None


def test_compose_runs_a_redis_that_keeps_jobs() -> None:
    # A server that evicts or forgets is the commonest way to lose a job.
    command = words(SERVICES["redis"])
    options = dict(zip(command[1::2], command[2::2], strict=True))
    assert options["--appendonly"] == "yes"
    assert options["--maxmemory-policy"] == "noeviction"


def test_compose_runs_a_scheduler_and_two_workers() -> None:
    # The smallest set-up that shows that a worker may die.
    commands = [found[0] for service in SERVICES.values() if (found := redisched_words(service))]
    assert sorted(commands) == ["scheduler", "worker", "worker"]


@pytest.mark.parametrize("service", SERVICES)
def test_compose_runs_commands_that_exist(service: str) -> None:
    # An option that was renamed shows when somebody starts it.
    arguments = redisched_words(SERVICES[service])
    if arguments is None:
        assert service == "redis"
        return
    assert callable(cli.parser().parse_args(arguments).run)


@pytest.mark.parametrize("scenario", scenarios())
def test_a_scenario_can_be_run_and_says_what_it_measures(scenario: str) -> None:
    # The runner imports them by name; a figure without its setting is none.
    module = importlib.import_module(f"benchmarks.scenarios.{scenario}")
    assert module.__doc__
    assert callable(module.run)
    assert len(inspect.signature(module.run).parameters) <= 1
