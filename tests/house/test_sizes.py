"""Files and functions that fit into a head, and a first paragraph that says what a file is."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.house import BENCHMARKS, LUA, ROOT, SCRIPTS, SHARED, SOURCES, name, tree

MAX_FILE = 400
MAX_FUNCTION = 60
# A Lua body is about 40 lines. Those that walk many jobs, tenants and lanes in one step (claim, enqueue, fire,
# promote, recount, repair) cannot be cut without a second script, and with it a state between the two: hence the room.
MAX_LUA_BODY = 190

PYTHON = [*SOURCES, *BENCHMARKS, *sorted((ROOT / "examples").rglob("*.py"))]
TESTS = sorted((ROOT / "tests").rglob("*.py"))


@pytest.mark.parametrize("path", PYTHON, ids=name)
def test_a_module_opens_with_what_lives_in_it(path: Path) -> None:
    # A reader should not have to find out from the code.
    assert ast.get_docstring(tree(path))


@pytest.mark.parametrize("path", PYTHON, ids=name)
def test_a_file_past_the_limit_is_split(path: Path) -> None:
    # Past 300 lines it is looked at, past 400 split.
    assert len(path.read_text().splitlines()) <= MAX_FILE


@pytest.mark.parametrize("path", PYTHON, ids=name)
def test_a_function_fits_on_a_screen(path: Path) -> None:
    # Counted with its docstring, from the first decorator.
    long = []
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            start = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            assert node.end_lineno is not None
            if node.end_lineno - start + 1 > MAX_FUNCTION:
                long.append(f"{name(path)}:{start} {node.name}: {node.end_lineno - start + 1} lines")
    assert not long


@pytest.mark.parametrize("path", [*SCRIPTS, *SHARED], ids=name)
def test_a_script_stays_short(path: Path) -> None:
    # The header is the contract and not counted.
    lines = path.read_text().splitlines()
    header = next((n for n, line in enumerate(lines) if not line.startswith("--")), len(lines))
    assert len(lines) - header <= MAX_LUA_BODY
    assert lines[0].startswith(f"-- {path.stem}: ")


@pytest.mark.parametrize("path", [*PYTHON, *TESTS, *sorted(LUA.rglob("*.lua"))], ids=name)
def test_nothing_is_left_for_later(path: Path) -> None:
    # An open end is an issue or a line in the docs, where somebody sees it.
    words = ["TO" + "DO", "FIX" + "ME", "X" * 3]  # in parts, so that this file passes
    found = re.search(rf"\b({'|'.join(words)})\b", path.read_text())
    assert not found
