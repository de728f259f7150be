"""One verb, one spelling: an edge in state.py, a Lua file, a store method and a test."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from redisched.state import EDGES
from redisched.store import Store
from redisched.store.plans import PlanCalls
from redisched.store.scripts import load_scripts
from tests.house import LUA, ROOT, SCRIPTS, SHARED

VERBS = sorted({edge.verb for edge in EDGES})
# Scripts that move no job: they answer a question, or write beside the states.
NO_STATE = ["backfill", "heal", "idle", "locate", "peek", "progress", "recount", "schedule", "stale", "unschedule"]
# A method that asks all shards for one answer reads better as a question.
METHODS = {"idle": "is_idle"}

STATES = "nothing|waiting|ready|running|dead|gone"
ARROW = re.compile(
    rf"(?P<from>(?:{STATES})(?:(?:, | or )(?:{STATES}))*) -> (?P<to>(?:{STATES})(?:,? or (?:{STATES}))*)"
)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_every_script_has_a_method_and_a_test(path: Path) -> None:
    # Whoever reads a script must find its caller and its test without a search.
    method = getattr(Store, METHODS.get(path.stem, path.stem), None)
    assert method is not None, f"Store.{path.stem}"
    assert f'"{path.stem}"' in inspect.getsource(method), "the method calls its script"
    assert (ROOT / "tests" / "lua" / f"test_{path.stem}.py").is_file()


def test_every_call_of_the_store_is_a_script() -> None:
    # A name that is no file fails only when it is called.
    called = set(
        re.findall(r"self\.call(?:_waiting)?\(\s*\"(\w+)\"", inspect.getsource(Store) + inspect.getsource(PlanCalls))
    )
    assert called == {path.stem for path in SCRIPTS}


def test_every_edge_has_a_script_and_every_script_that_moves_jobs_an_edge() -> None:
    # A transition that is not in state.py does not exist.
    assert sorted([*VERBS, *NO_STATE]) == [path.stem for path in SCRIPTS]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_scripts_first_line_says_its_edge(path: Path) -> None:
    # The header and state.py say the same, or one of them is wrong.
    purpose = load_scripts()[path.stem].purpose
    if path.stem in NO_STATE:
        assert purpose.startswith(("changes nothing.", "changes no state."))
        return
    found = ARROW.match(purpose)
    assert found, purpose
    edges = {(edge.source or "nothing", str(edge.target)) for edge in EDGES if edge.verb == path.stem}
    said = {(a, b) for a in re.findall(STATES, found["from"]) for b in re.findall(STATES, found["to"])}
    assert said <= {(str(a), b) for a, b in edges}


@pytest.mark.parametrize("part", SHARED, ids=lambda path: path.stem)
def test_every_shared_part_is_included_somewhere(part: Path) -> None:
    # Lua that nobody runs is never found broken.
    assert any(f"-- @include {part.stem}\n" in path.read_text() for path in LUA.rglob("*.lua"))
