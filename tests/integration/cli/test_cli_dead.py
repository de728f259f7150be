"""`redisched dead ...`: tries to make it touch more than was asked for, or ask where nobody can answer."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest

from redisched.cli import dead
from tests.support.servers import ServerProcess
from tests.support.shell import Shell


@pytest.fixture
def shell(server_of: Callable[[str], ServerProcess], capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(server_of("valkey").url, capsys)


def test_dead_list_and_show(shell: Shell) -> None:
    ids = shell.bury(3, "--tenant", "a")
    letters = shell("dead", "list", "--json").json
    assert [x["id"] for x in letters] == ids[::-1]
    assert len(shell("dead", "list", "--limit", "1", "--json").json) == 1
    assert shell("dead", "list", "--job", "other", "--json").json == []
    for text in (shell("dead", "list").out, shell("dead", "show", ids[0]).out):
        assert "ValueError: bad" in text
        assert "\x1b" not in text, "an error's text must not reach the terminal raw"
    assert shell("dead", "show", ids[0], "--json").json["runs"][0]["outcome"] == "failed"
    assert shell("dead", "show", "nope").code == 1
    assert [v["id"] for v in shell("jobs", "list", "--state", "dead", "--json").json] == ids[::-1]


def test_dead_replay_by_id_and_the_rest_stays(shell: Shell) -> None:
    ids = shell.bury(3)
    answer = shell("dead", "replay", ids[1], "nope", "--json")
    assert answer.json == {"replayed": 1, "not_dead": ["nope"]}
    assert answer.code == 1
    assert {x["id"] for x in shell("dead", "list", "--json").json} == {ids[0], ids[2]}
    shell.work()
    assert {x["id"] for x in shell("dead", "list", "--json").json} == set(ids)


@pytest.mark.parametrize("verb", ["replay", "purge"])
def test_a_selection_touches_only_what_it_names(shell: Shell, verb: str) -> None:
    a, b = shell.bury(2, "--tenant", "a"), shell.bury(2, "--tenant", "b")
    yes = ["--yes"] if verb == "purge" else []
    assert shell("dead", verb, "--tenant", "a", "--job", "other", *yes).out.startswith(f"{verb}")
    assert len(shell("dead", "list", "--json").json) == 4
    assert shell("dead", verb, "--tenant", "a", *yes, "--json").json[f"{verb.rstrip('e')}ed"] == len(a)
    assert {x["id"] for x in shell("dead", "list", "--json").json} == set(b)
    assert shell("dead", verb, "--job", "bad", *yes).code == 0
    assert shell("dead", "list", "--json").json == []


@pytest.mark.parametrize("verb", ["replay", "purge"])
def test_without_a_selection_nothing_happens(shell: Shell, verb: str) -> None:
    shell.bury(1)
    answer = shell("dead", verb)
    assert answer.code == 2
    assert "--all" in answer.err
    assert len(shell("dead", "list", "--json").json) == 1


def test_purge_wants_a_yes_and_does_not_wait_for_one(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    (job_id,) = shell.bury(1)
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    answer = shell("dead", "purge", "--all")
    assert answer.code == 2
    assert "--yes" in answer.err

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stdin", Terminal("\n"))
    assert shell("dead", "purge", "--all").code == 1
    assert shell("dead", "purge", job_id).out == "purged 1 dead letter\n"


def test_long_work_tells_how_far_it_is(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.bury(5, "--tenant", "a")
    monkeypatch.setattr(dead, "BATCH", 2)
    monkeypatch.setattr(dead, "TELL_S", 0.0)
    answer = shell("dead", "replay", "--all", "--json")
    assert answer.json["replayed"] == 5
    assert answer.err.splitlines() == ["replayed 2 so far", "replayed 4 so far"]
