"""The public surface: names that users import, and the tree of errors that they catch."""

from __future__ import annotations

import inspect
import re
import tomllib

import redisched
from redisched import errors
from tests.house import ROOT

# Taking a name away breaks somebody; adding one is a promise. Both are done here, on purpose.
EXPORTED = [
    "Backfill",
    "Call",
    "ConfigError",
    "Context",
    "Cron",
    "EmbeddedUnavailable",
    "Every",
    "InvalidCall",
    "InvalidSchedule",
    "Job",
    "JobCancelled",
    "JobFailed",
    "JobView",
    "LayoutMismatch",
    "LeaseLost",
    "Misfire",
    "MovableClock",
    "NotDurable",
    "Outcome",
    "Overlap",
    "PayloadTooLarge",
    "PayloadUndecodable",
    "Plan",
    "PlanRun",
    "PlanView",
    "QuotaExceeded",
    "RRule",
    "RedischedError",
    "Retry",
    "Run",
    "ScheduleChanged",
    "Scheduler",
    "State",
    "StoreError",
    "StoreFull",
    "StoreUnavailable",
    "UnknownHandler",
    "UnknownJob",
    "UnknownSchedule",
]

ERRORS = [kind for kind in vars(errors).values() if inspect.isclass(kind) and kind.__module__ == errors.__name__]


def test_the_exported_names_are_these() -> None:
    # A refactoring that moves a class must not take it away from its users.
    assert sorted(redisched.__all__) == EXPORTED
    assert sorted(EXPORTED) == EXPORTED


def test_every_exported_name_exists_and_is_ours() -> None:
    # `from redisched import *` fails on a name that is not there.
    for one in redisched.__all__:
        found = getattr(redisched, one)
        assert found.__module__.startswith("redisched."), one


def test_every_error_is_exported() -> None:
    # One that cannot be imported from the package cannot be caught by its name.
    assert {kind.__name__ for kind in ERRORS} <= set(redisched.__all__)


def drawn() -> list[tuple[str, str]]:
    """Parent and name of each line of the tree in the docstring of errors.py."""
    assert errors.__doc__ is not None
    path: list[tuple[int, str]] = []
    pairs = []
    for line in errors.__doc__.splitlines():
        found = re.match(r"    ((?:[│ ]   )*(?:[├└]── )?)([A-Z][A-Za-z]+)( {2,}\S.*)?$", line)
        if not found:
            continue
        depth = len(found[1])
        path = [(d, one) for d, one in path if d < depth]
        if path:
            assert found[3], f"{found[2]} is drawn without a word on what it is"
            pairs.append((path[-1][1], found[2]))
        path.append((depth, found[2]))
    return pairs


def test_the_drawn_tree_is_the_real_one() -> None:
    # The drawing is what people read.
    real = [(kind.__bases__[0].__name__, kind.__name__) for kind in ERRORS if kind is not errors.RedischedError]
    assert sorted(drawn()) == sorted(real)


def test_the_version_is_said_once() -> None:
    # A release that forgets one of the two places.
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert redisched.__version__ == project["version"]
