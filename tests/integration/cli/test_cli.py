"""Every command that asks or changes something, as a user calls it, against a real server.

Tries to break: stdout that is not one JSON document, tracebacks for a user's mistake, exit codes, selections
that would touch more than was asked for, names that move a terminal's cursor.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from redisched.cli import main
from redisched.cli.common import span
from tests.support.servers import ServerProcess
from tests.support.shell import Shell


@pytest.fixture
def shell(server_of: Callable[[str], ServerProcess], capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(server_of("valkey").url, capsys)


# -- enqueue


def test_enqueue_prints_the_id_and_nothing_else(shell: Shell) -> None:
    answer = shell("enqueue", "ok", '{"n": 3}', "--tenant", "acme")
    assert answer.code == 0
    job_id = answer.out.strip()
    assert shell("jobs", "show", job_id, "--json").json["args"] == [[], {"n": 3}]


def test_enqueue_with_a_key_gives_the_same_job_back(shell: Shell) -> None:
    first = shell("enqueue", "ok", "--key", "k", "--delay", "5m", "--json").json
    second = shell("enqueue", "ok", "--key", "k", "--delay", "5m", "--json").json
    assert first["id"] == second["id"]
    assert (first["created"], second["created"]) == (True, False)


def test_enqueue_at_a_time(shell: Shell) -> None:
    job_id = shell("enqueue", "ok", "[1]", "--at", "2100-01-01T09:00:00+01:00", "--priority", "high").out.strip()
    view = shell("jobs", "show", job_id, "--json").json
    assert (view["run_at"], view["priority"], view["state"]) == (
        "2100-01-01T08:00:00.000Z",
        "high",
        "waiting",
    )


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["ok", '{"n": 3'], "at character 8"),
        (["ok", "{'n': 3}"], "at character 2"),
        (["ok", "[NaN]"], "NaN"),
        (["ok", "3"], "an object of named or an array"),
        (["ok", '"text"'], "an object of named or an array"),
        (["o k"], "a job's name is"),
        (["ok", "[" * 100_000], "ARGS-JSON"),
        (["ok", "--at", "tomorrow"], "ISO-8601"),
        (["ok", "--at", "2100-01-01T00:00:00"], "time zone"),
        (["ok", "--delay", "soon"], "5m"),
        (["ok", "--delay", "-5m"], "expected one argument"),
        (["ok", "--delay=-5m"], "not negative"),
        (["ok", "--at", "2100-01-01T00:00:00Z", "--delay", "1"], "not allowed with"),
        (["ok", "--tenant", "x" * 200], "a tenant's name is"),
        (["ok", "--key", ""], "a key is 1 to"),
        (["ok", json.dumps(["x" * 70_000])], "the limit is"),
        (["ok", '{"self": 1, "name": 2}', "--priority", "urgent"], "invalid choice"),
    ],
)
def test_a_bad_enqueue_ends_with_2_and_says_why(shell: Shell, words: list[str], hint: str) -> None:
    answer = shell("enqueue", *words)
    assert (answer.code, answer.out) == (2, "")
    assert hint in answer.err
    assert shell("jobs", "list", "--json").json == []


def test_any_argument_name_can_be_given(shell: Shell) -> None:
    job_id = shell("enqueue", "ok", '{"self": 1, "name": 2, "args": 3}').out.strip()
    assert shell("jobs", "show", job_id, "--json").json["args"][1] == {"self": 1, "name": 2, "args": 3}


# -- jobs


def test_jobs_list_filters_and_orders(shell: Shell) -> None:
    later = shell("enqueue", "ok", "--delay", "2h", "--tenant", "a").out.strip()
    sooner = shell("enqueue", "ok", "--delay", "1h", "--tenant", "b").out.strip()
    ready = shell("enqueue", "bad", "--tenant", "a").out.strip()
    assert [v["id"] for v in shell("jobs", "list", "--json").json] == [ready, sooner, later]
    assert [v["id"] for v in shell("jobs", "list", "--tenant", "a", "--json").json] == [ready, later]
    assert [v["id"] for v in shell("jobs", "list", "--state", "waiting", "--json").json] == [sooner, later]
    assert [v["id"] for v in shell("jobs", "list", "--name", "bad", "--json").json] == [ready]
    assert [v["id"] for v in shell("jobs", "list", "--limit", "2", "--json").json] == [ready, sooner]
    assert shell("jobs", "list", "--state", "dead", "--json").json == []
    table = shell("jobs", "list").out
    assert all(job_id in table for job_id in (ready, sooner, later))
    assert shell("jobs", "list", "--tenant", "nobody").out == "no such jobs\n"


def test_jobs_show_says_where_a_job_is_and_why(shell: Shell) -> None:
    first, second = (shell("enqueue", "ok", "[1]", "--tenant", "a").out.strip() for _ in range(2))
    text = shell("jobs", "show", second).out
    assert "1 job is before it" in text
    assert "no worker is alive" in text
    assert "ok(1)" in text
    failing = shell("enqueue", "again", "--tenant", "a").out.strip()
    shell.work()
    text = shell("jobs", "show", failing).out
    assert "it waits for its time, in 59 min" in text
    assert "failed 1 of 2 times" in text
    assert "ValueError: not yet" in text
    assert "done" in shell("jobs", "show", first, "--tenant", "a").out


def test_jobs_cancel_once_and_again(shell: Shell) -> None:
    job_id = shell("enqueue", "ok", "--delay", "1h", "--tenant", "a").out.strip()
    assert shell("jobs", "cancel", job_id, "--json").json == {
        "id": job_id,
        "cancelled": True,
        "state": "cancelled",
    }
    again = shell("jobs", "cancel", job_id)
    assert (again.code, "gone already" in again.out) == (1, True)
    assert "cancelled" in shell("jobs", "show", job_id).out


def test_an_unknown_job_is_an_error_in_one_line(shell: Shell) -> None:
    answer = shell("jobs", "show", "nope", "--json")
    assert (answer.code, answer.out) == (1, "")
    assert answer.err.startswith("redisched: error: there is no job nope")
    assert shell("jobs", "cancel", "nope").code == 1


# -- stats and doctor


def test_stats_count_every_state(shell: Shell) -> None:
    shell.bury(2, "--tenant", "a")
    shell("enqueue", "ok", "--tenant", "a", "--delay", "1h")
    shell("enqueue", "ok", "--tenant", "b")
    found = shell("stats", "--json").json
    rows = {t["tenant"]: t for t in found["tenants"]}
    assert (rows["a"]["waiting"], rows["a"]["dead"], rows["b"]["ready"]) == (1, 2, 1)
    assert found["sum"]["dead"] == 2
    assert found["totals"]["enqueued"] == 4
    assert found["next_due"].endswith("Z")
    assert [t["tenant"] for t in shell("stats", "--tenant", "b", "--json").json["tenants"]] == ["b"]
    text = shell("stats").out
    assert "(all)" in text
    assert "members   none alive" in text


def test_a_tenants_name_cannot_move_the_cursor(shell: Shell) -> None:
    shell("enqueue", "ok", "--tenant", "evil\x1b[2J\nroot  9")
    for words in (["stats"], ["jobs", "list"]):
        out = shell(*words).out
        assert "\x1b" not in out
        assert r"evil\u001b[2J\nroot  9" in out
    assert shell("stats", "--json").json["tenants"][0]["tenant"] == "evil\x1b[2J\nroot  9"


def test_doctor_finds_fixes_and_tells_by_its_exit_code(shell: Shell, server_of: Callable[[str], ServerProcess]) -> None:
    job_id = shell("enqueue", "ok", "--delay", "1h", "--tenant", "a").out.strip()
    healthy = shell("doctor")
    assert (healthy.code, "all is well" in healthy.out) == (0, True)
    found = shell("stats", "--json").json
    for shard in range(found["shards"]):
        server_of("valkey").command("ZREM", f"{{{shell.namespace}:{shard}}}:due", f"a/{job_id}")
    broken = shell("doctor")
    assert broken.code == 1
    assert f"job {job_id} is in no place" in broken.out
    assert shell("doctor", "--json").json["remaining"] > 0
    fixed = shell("doctor", "--fix", "--json")
    assert (fixed.code, fixed.json["remaining"]) == (0, 0)
    assert shell("doctor").code == 0


# -- the command itself


def test_a_server_that_is_not_there_is_one_line_and_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stats", "--url", "redis://127.0.0.1:1/0"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert "did not answer" in err


@pytest.mark.parametrize(
    "words",
    [["stats", "--url", "http://x"], ["stats", "--url", "redis+cluster://x"], ["jobs"], ["nonsense"], []],
)
def test_a_wrong_call_ends_with_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code: Any = main(words)
    except SystemExit as end:
        code = end.code
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert "error" in err


def test_the_installed_command_and_its_module_answer(server_of: Callable[[str], ServerProcess]) -> None:
    url = server_of("valkey").url
    command = [sys.executable, "-m", "redisched", "stats", "--json", "--url", url, "--namespace", "fresh"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["tenants"] == []


def test_a_closed_pipe_is_no_error(server_of: Callable[[str], ServerProcess]) -> None:
    url = server_of("valkey").url
    command = f"{sys.executable} -m redisched jobs list --json --url {url} --namespace fresh | true"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=30, check=False)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.012, "12 ms"), (3.4, "3.4 s"), (252, "4 min 12 s"), (7500, "2 h 5 min"), (273_600, "3 d 4 h")],
)
def test_a_span_in_words(seconds: float, words: str) -> None:
    assert span(seconds) == words
