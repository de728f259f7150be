"""Loads `lua/`: parses each script's header strictly, binds its slots to locals, adds what it includes.

The header is the contract between a script and the store: the store builds KEYS from the words in
it, so header and call cannot drift apart. Called once, when a store is made; touches no server.

    -- complete: running -> gone. ...
    -- KEYS[1] leases         -- zset           ->  local leases_key = KEYS[1]
    -- KEYS[2] lane:          -- prefix         ->  local lane_prefix = KEYS[2]
    -- ARGV[1] now_ms : int   -- ...            ->  local now_ms = tonumber(ARGV[1])
    -- ARGV[2] ended : rest   -- ...            ->  local ended = 2   (index of the first of many)
    -- RETURNS {completed, stale...}
    -- @include clock
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from redisched.keys import SHARD_KEYS

_TITLE = re.compile(r"-- ([a-z_]+): \S.*")
_KEY = re.compile(r"-- KEYS\[(\d+)\] ([a-z_]+:?) +-- \S.*")
_ARG = re.compile(r"-- ARGV\[(\d+)\] ([a-z_]+) : (int|str|rest)(?: +-- \S.*)?")
_RETURNS = re.compile(r"-- RETURNS \{.+")
_INCLUDE = re.compile(r"-- @include ([a-z_]+)")
_SLOT_LIKE = re.compile(r"--\s*(KEYS|ARGV|RETURNS|@)")


class ScriptError(Exception):
    """A Lua file does not keep the rules. A bug of ours, found when the package is loaded."""


@dataclass(frozen=True, slots=True)
class Script:
    """A loaded script: its whole text, the server's name for it, and what its call must bring."""

    name: str
    purpose: str
    keys: tuple[str, ...]
    args: tuple[tuple[str, str], ...]
    returns: str
    text: str
    sha: str


def lua_folder() -> Path:
    """`lua/` inside an installed package, or at the top of the repository in an editable install."""
    inside = Path(__file__).parent.parent / "lua"
    return inside if inside.is_dir() else Path(__file__).parents[3] / "lua"


@cache
def load_scripts() -> dict[str, Script]:
    folder = lua_folder()
    scripts = {path.stem: load_script(path.stem, folder) for path in sorted(folder.glob("*.lua"))}
    if not scripts:
        raise ScriptError(f"no scripts in {folder}: the package is not whole; install it again")
    return scripts


def load_script(name: str, folder: Path) -> Script:
    lines = (folder / f"{name}.lua").read_text().splitlines()
    header, body = _split(lines)
    title = _TITLE.fullmatch(header[0]) if header else None
    if not title or title[1] != name:
        raise ScriptError(f"{name}.lua: the first line must read `-- {name}: what it does`")
    keys: list[str] = []
    args: list[tuple[str, str]] = []
    includes: list[str] = []
    returns = ""
    for line in header[1:]:
        if match := _KEY.fullmatch(line):
            _expect_next(name, "KEYS", int(match[1]), len(keys))
            if match[2] != "call" and match[2] not in SHARD_KEYS:
                raise ScriptError(f"{name}.lua: {match[2]!r} is no key of keys.py")
            keys.append(match[2])
        elif match := _ARG.fullmatch(line):
            _expect_next(name, "ARGV", int(match[1]), len(args))
            if args and args[-1][1] == "rest":
                raise ScriptError(f"{name}.lua: {args[-1][0]!r} takes the rest, nothing can follow it")
            args.append((match[2], match[3]))
        elif _RETURNS.fullmatch(line):
            returns = line.removeprefix("-- RETURNS ")
        elif match := _INCLUDE.fullmatch(line):
            includes.append(match[1])
        elif _SLOT_LIKE.match(line):
            raise ScriptError(f"{name}.lua: cannot read the header line {line!r}")
    if not returns:
        raise ScriptError(f"{name}.lua: the header must say what it RETURNS")
    text = "\n".join([*_bindings(name, keys, args), *_included(includes, folder), *body]) + "\n"
    return Script(name, header[0].removeprefix(f"-- {name}: "), tuple(keys), tuple(args), returns, text, sha1(text))


def sha1(text: str) -> str:
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def _split(lines: list[str]) -> tuple[list[str], list[str]]:
    end = next((n for n, line in enumerate(lines) if not line.startswith("--")), len(lines))
    return lines[:end], lines[end:]


def _expect_next(name: str, kind: str, number: int, before: int) -> None:
    if number != before + 1:
        raise ScriptError(f"{name}.lua: {kind}[{number}] follows {kind}[{before}]: the numbers must have no gap")


def _bindings(name: str, keys: list[str], args: list[tuple[str, str]]) -> list[str]:
    bound = [(k[:-1] + "_prefix" if k.endswith(":") else k + "_key", f"KEYS[{n}]") for n, k in enumerate(keys, 1)]
    for n, (arg, kind) in enumerate(args, 1):
        bound.append((arg, {"int": f"tonumber(ARGV[{n}])", "str": f"ARGV[{n}]", "rest": str(n)}[kind]))
    names = [local for local, _ in bound]
    if twice := {local for local in names if names.count(local) > 1}:
        raise ScriptError(f"{name}.lua: {', '.join(sorted(twice))} is bound twice")
    return [f"local {local} = {value}" for local, value in bound]


def _included(includes: list[str], folder: Path) -> list[str]:
    """The text of shared parts, each once, those they include first."""
    done: list[str] = []
    out: list[str] = []

    def add(part: str, path: tuple[str, ...]) -> None:
        if part in path:
            raise ScriptError(f"lua/lib: {' -> '.join([*path, part])} include each other in a circle")
        if part in done:
            return
        file = folder / "lib" / f"{part}.lua"
        if not file.is_file():
            raise ScriptError(f"lua/lib/{part}.lua does not exist, but {' -> '.join(path) or 'a script'} includes it")
        header, body = _split(file.read_text().splitlines())
        for line in header:
            if match := _INCLUDE.fullmatch(line):
                add(match[1], (*path, part))
            elif _SLOT_LIKE.match(line):
                raise ScriptError(f"lua/lib/{part}.lua: cannot read the header line {line!r}")
        done.append(part)
        out.extend(body)

    for part in includes:
        add(part, ())
    return out
