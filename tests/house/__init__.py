"""The house rules as tests: what a reviewer would have to remember. When a rule hurts, change it and say why."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "redisched"
LUA = ROOT / "lua"
DOCS = ROOT / "docs"

SOURCES = sorted(PACKAGE.rglob("*.py"))
SCRIPTS = sorted(LUA.glob("*.lua"))
SHARED = sorted((LUA / "lib").glob("*.lua"))
BENCHMARKS = sorted((ROOT / "benchmarks").rglob("*.py"))

# What a checkout holds beside its files: .gitignore's list, and git itself.
NOT_OURS = {".git", ".venv", "__pycache__", ".mypy_cache", ".ruff_cache", ".hypothesis", "dist", "build", "results"}


def name(path: Path) -> str:
    """A file's name in test ids and messages."""
    return path.relative_to(ROOT).as_posix()


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), name(path))


def module_of(path: Path) -> str:
    """`redisched.store.connect`; a package is named by its folder."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> Iterator[tuple[int, str, str]]:
    """Line, module and name of everything a file imports, inside functions and `if TYPE_CHECKING` too."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name, ""
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name(path)}:{node.lineno}: imports are absolute"
            for alias in node.names:
                yield node.lineno, node.module or "", alias.name


def texts() -> Iterator[tuple[Path, str]]:
    """Every text file of the project."""
    for path in sorted(ROOT.rglob("*")):
        parts = path.relative_to(ROOT).parts
        if NOT_OURS & set(parts) or any(part.endswith(".egg-info") for part in parts) or not path.is_file():
            continue
        try:
            yield path, path.read_text()
        except UnicodeDecodeError:
            continue
