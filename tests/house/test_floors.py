"""A module imports only lower floors, or its own package. Tries to find one that looks up."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.house import PACKAGE, SOURCES, imports, module_of, name

# Neighbours on a floor know nothing of each other; where one stands on another, it is a part of a floor higher.
FLOORS: dict[str, float] = {
    "errors": 1,
    "clock": 1,
    "state": 2,
    "model": 3,
    "policy": 3,
    "settings": 3.1,
    "keys": 4,
    "ids": 4,
    "cron": 4,
    "logs": 4,
    "backoff": 4,
    "_guardian": 4,
    "embedded": 4.1,
    "codec": 4.1,
    "registry": 4.2,
    "plan": 4.2,
    "store": 5,
    "listing": 6,
    "survey": 6,
    "scheduler": 6,
    "worker": 6.1,
    "outbox": 6,
    "inspector": 6.1,
    "handles": 6.2,
    "doctor": 6.2,
    "plans": 6.3,
    "recurring": 6.4,
    "client": 7,
    "host": 8,
    "cli": 9,
    "__main__": 9.1,
    "": 10,  # the package itself: what `import redisched` gives
}
MODULES = {module_of(path) for path in SOURCES}


def part_of(module: str) -> str:
    """The module or package directly under `redisched` that a module belongs to."""
    return module.partition(".")[2].partition(".")[0]


def test_the_table_names_every_module_and_no_other() -> None:
    # A new module needs a floor before it can be imported; one that went must not haunt the table.
    assert sorted({part_of(module) for module in MODULES}) == sorted(FLOORS)


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_a_module_imports_only_lower_floors(path: Path) -> None:
    # An import that looks up is the first half of a circle, also when it hides in a function.
    here = part_of(module_of(path))
    wrong = []
    for line, module, what in imports(path):
        if module.partition(".")[0] != "redisched":
            continue
        there = part_of(f"{module}.{what}" if f"{module}.{what}" in MODULES else module)
        if there != here and FLOORS[there] >= FLOORS[here]:
            wrong.append(f"{name(path)}:{line} ({FLOORS[here]:g}) imports {there or 'redisched'} ({FLOORS[there]:g})")
    assert not wrong


def test_the_walk_sees_imports_inside_functions() -> None:
    # The test of the test: embedded.py imports the guardian lazily.
    assert ("redisched", "_guardian") in {(module, what) for _, module, what in imports(PACKAGE / "embedded.py")}
