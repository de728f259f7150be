"""The loader of `lua/`: a header that breaks a rule is refused before any server sees the script."""

from __future__ import annotations

from pathlib import Path

import pytest

from redisched.keys import SHARD_KEYS
from redisched.state import EDGES
from redisched.store.scripts import ScriptError, load_script, load_scripts, lua_folder, sha1

GOOD = """\
-- demo: does nothing.
-- More words about it, which the loader leaves alone.
-- KEYS[1] leases  -- zset
-- KEYS[2] lane:   -- stream, completed with a lane's name
-- KEYS[3] call    -- string, the caller's own
-- ARGV[1] now_ms : int   -- 0: Redis' clock
-- ARGV[2] word : str
-- ARGV[3] others : rest  -- many
-- RETURNS {nothing}
-- @include upper
-- @include lower
return { now_ms }
"""
PARTS = {
    "upper": "-- upper: stands on lower.\n-- @include lower\nlocal upper = lower\n",
    "lower": "-- lower: the ground.\nlocal lower = 1\n-- a comment of the body\n",
}


def write(folder: Path, text: str, **parts: str) -> Path:
    (folder / "lib").mkdir()
    (folder / "demo.lua").write_text(text)
    for name, part in (PARTS | parts).items():
        (folder / "lib" / f"{name}.lua").write_text(part)
    return folder


def test_a_good_script_is_bound_and_assembled(tmp_path: Path) -> None:
    # Tries to bind a slot to the wrong number, or to include a part twice or after who needs it.
    script = load_script("demo", write(tmp_path, GOOD))
    assert script.text.splitlines() == [
        "local leases_key = KEYS[1]",
        "local lane_prefix = KEYS[2]",
        "local call_key = KEYS[3]",
        "local now_ms = tonumber(ARGV[1])",
        "local word = ARGV[2]",
        "local others = 3",
        "local lower = 1",
        "-- a comment of the body",
        "local upper = lower",
        "return { now_ms }",
    ]
    assert (script.name, script.purpose, script.returns) == ("demo", "does nothing.", "{nothing}")
    assert script.keys == ("leases", "lane:", "call")
    assert script.args == (("now_ms", "int"), ("word", "str"), ("others", "rest"))
    assert script.sha == sha1(script.text)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("-- demo: does", "-- other: does", "first line"),
        ("-- demo: does nothing.", "-- demo:", "first line"),
        ("-- demo: does", "--demo: does", "first line"),
        ("-- demo: does", "\n-- demo: does", "first line"),
        (GOOD, "", "first line"),
        ("KEYS[2]", "KEYS[3]", "no gap"),
        ("KEYS[1]", "KEYS[0]", "no gap"),
        ("KEYS[2] lane:  ", "KEYS[1] lane:  ", "no gap"),
        ("ARGV[2]", "ARGV[4]", "no gap"),
        ("ARGV[1]", "ARGV[2]", "no gap"),
        ("leases ", "leaves ", "no key of keys.py"),
        ("lane: ", "lane  ", "no key of keys.py"),
        ("leases ", "leases:", "no key of keys.py"),
        ("KEYS[1] leases  -- zset", "KEYS[1] leases", "cannot read"),
        ("KEYS[1] leases", "KEYS[1]leases", "cannot read"),
        ("-- KEYS[1]", "--KEYS[1]", "cannot read"),
        ("-- KEYS[1]", "--  KEYS[1]", "cannot read"),
        ("KEYS[1] leases", "KEYS[1] Leases", "cannot read"),
        ("KEYS[1]", "KEYS 1", "cannot read"),
        ("now_ms : int", "now_ms", "cannot read"),
        ("now_ms : int", "now_ms: int", "cannot read"),
        ("now_ms : int", "now_ms : float", "cannot read"),
        ("word : str", "word : rest", "nothing can follow"),
        ("word : str", "now_ms : str", "now_ms is bound twice"),
        ("KEYS[3] call ", "KEYS[3] leases ", "leases_key is bound twice"),
        ("word : str", "call_key : str", "call_key is bound twice"),
        ("-- RETURNS {nothing}\n", "", "RETURNS"),
        ("-- RETURNS {nothing}", "-- RETURNS nothing", "cannot read"),
        ("-- RETURNS {nothing}", "-- RETURN {nothing}", "RETURNS"),
        ("@include upper", "@included upper", "cannot read"),
        ("@include upper", "@include", "cannot read"),
        ("@include upper", "@include ../demo", "cannot read"),
        ("@include upper", "@include missing", "missing.lua does not exist"),
    ],
)
def test_a_header_that_breaks_a_rule_is_refused(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    # Tries to slip a header past the loader: what it cannot read it must not ignore.
    assert old in GOOD
    with pytest.raises(ScriptError, match=complaint):
        load_script("demo", write(tmp_path, GOOD.replace(old, new, 1)))


@pytest.mark.parametrize(
    ("parts", "complaint"),
    [
        ({"lower": "-- lower: x\n-- @include upper\n"}, "upper -> lower -> upper include each other"),
        ({"lower": "-- lower: x\n-- @include lower\n"}, "lower -> lower include each other"),
        (
            {"upper": "-- upper: x\n-- @include missing\n"},
            "missing.lua does not exist, but upper includes it",
        ),
        ({"upper": "-- upper: x\n-- @Include lower\n"}, "cannot read"),
        ({"upper": "-- upper: x\n-- KEYS[1] leases  -- zset\n"}, "cannot read"),
    ],
)
def test_a_shared_part_that_breaks_a_rule_is_refused(tmp_path: Path, parts: dict[str, str], complaint: str) -> None:
    # Tries to send the loader round in a circle, or to take slots where there are none.
    with pytest.raises(ScriptError, match=complaint):
        load_script("demo", write(tmp_path, GOOD, **parts))


def test_a_part_that_two_others_need_comes_once(tmp_path: Path) -> None:
    # Tries to take a diamond for a circle.
    parts = {
        "a": "-- a: x\n-- @include lower\n",
        "b": "-- b: x\n-- @include a\n-- @include lower\nlocal b = 1\n",
    }
    script = load_script("demo", write(tmp_path, GOOD.replace("@include upper", "@include b"), **parts))
    assert script.text.count("local lower = 1") == 1


def test_another_text_has_another_name(tmp_path: Path) -> None:
    # Tries to run an old script under a new version's name: a change in a shared part must change the name.
    first = load_script("demo", write(tmp_path, GOOD))
    (tmp_path / "lib" / "lower.lua").write_text("-- lower: the ground.\nlocal lower = 2\n")
    assert load_script("demo", tmp_path).sha != first.sha


def test_an_empty_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Tries to start with a package whose scripts were left out.
    monkeypatch.setattr("redisched.store.scripts.lua_folder", lambda: tmp_path)
    with pytest.raises(ScriptError, match="install it again"):
        load_scripts.__wrapped__()


def test_our_own_scripts_keep_the_rules() -> None:
    # Tries to keep a script that nothing loads, a transition without a script, or a script without a test.
    scripts = load_scripts()
    assert set(scripts) == {path.stem for path in lua_folder().glob("*.lua")}
    tests = {path.stem.removeprefix("test_") for path in Path(__file__).parent.glob("test_*.py")}
    assert set(scripts) <= tests
    used = {key for script in scripts.values() for key in script.keys}
    assert used - {"call"} <= set(SHARD_KEYS)
    missing = {edge.verb for edge in EDGES} - set(scripts) - {"repair"}
    assert not missing
