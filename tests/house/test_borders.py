"""What only one place may do: talk to redis-py, spell keys. And what no place may: unpickle, use what servers lack."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from redisched.keys import SHARD_KEYS
from tests.house import PACKAGE, SCRIPTS, SHARED, SOURCES, imports, name, tree

REDIS = {"redis", "hiredis", "fakeredis", "valkey"}
RUNS_CODE = {"pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle"}

# `{rs:7}:due`, `rs:meta`: a closing tag, or a colon and a key's word that ends the text or opens a further part.
WORDS = "|".join(sorted({word.rstrip(":") for word in SHARD_KEYS} | {"meta", "members"}))
SPELLED = re.compile(rf"\}}:|\S:(?:{WORDS})(?::|$)|^:(?:{WORDS})\b")


def literals(path: Path) -> Iterator[tuple[int, str]]:
    """Every string of a file but its docstrings; the fixed parts of an f-string one by one."""
    docs = {
        id(node.body[0].value)
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Constant) and id(node) not in docs:
            if isinstance(node.value, str):
                yield node.lineno, node.value
            elif isinstance(node.value, bytes):
                yield node.lineno, node.value.decode("latin-1")


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_only_the_store_imports_redis(path: Path) -> None:
    # A second road to the server is one that no script guards.
    found = [(line, module) for line, module, _ in imports(path) if module.partition(".")[0] in REDIS]
    assert not found or path.is_relative_to(PACKAGE / "store")


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_nothing_that_is_stored_can_run_code(path: Path) -> None:
    # Whoever can write to Redis must not be able to run code in a worker.
    found = [(line, module) for line, module, _ in imports(path) if module.partition(".")[0] in RUNS_CODE]
    assert not found
    calls = {n.func.id for n in ast.walk(tree(path)) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    assert not calls & {"eval", "exec", "compile", "__import__"}


@pytest.mark.parametrize("path", [p for p in SOURCES if p.name != "keys.py"], ids=name)
def test_only_keys_py_spells_keys(path: Path) -> None:
    # A key that is spelled twice is changed once.
    found = [f"{name(path)}:{line}: {text!r}" for line, text in literals(path) if SPELLED.search(text)]
    assert not found


def test_the_pattern_finds_keys_and_leaves_words_alone() -> None:
    # The test of the test.
    for key in ("{rs:7}:due", ":meta", "rs:members", "}:lane:", ":leases"):
        assert SPELLED.search(key), key
    for words in ("redisched: error: ", "due", "%H:%M", "cancelled: done", "app:sched", "jobs: none"):
        assert not SPELLED.search(words), words


@pytest.mark.parametrize("path", [*SCRIPTS, *SHARED], ids=name)
def test_scripts_use_only_what_every_server_has(path: Path) -> None:
    # cmsgpack and bit are missing on some servers and in the in-memory one; a shebang changes how keys are checked.
    text = path.read_text()
    code = "\n".join(line.partition("--")[0] for line in text.splitlines())
    assert not text.startswith("#!")
    assert not re.search(r"\b(cmsgpack|cjson|struct|bit)\s*\.", code)
    assert not re.search(r"\b(loadstring|load|dofile|require|setfenv)\s*\(", code)


@pytest.mark.parametrize("path", [*SCRIPTS, *SHARED], ids=name)
def test_scripts_get_their_keys_from_the_store(path: Path) -> None:
    # A key that Lua spells by itself may live in another slot: the cluster would refuse it.
    code = "\n".join(line.partition("--")[0] for line in path.read_text().splitlines())
    spelled = [text for text in re.findall(r"'([^']*)'", code) if "{" in text or text.startswith(f":{WORDS}:")]
    assert not spelled
    assert not re.search(r"\b(KEYS|ARGV)\[\d", code), "slots are bound by the header"


@pytest.mark.parametrize("path", [*SCRIPTS, *SHARED], ids=name)
def test_scripts_take_the_time_from_one_place(path: Path) -> None:
    # Invariant 2: TIME is read in lib/clock.lua, which a test can replace, and nowhere else.
    assert path.stem == "clock" or "'TIME'" not in path.read_text()
