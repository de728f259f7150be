"""`redisched schedules ...` as a user calls it, against a real server.

Tries to break: what is said of a change (created, replaced, unchanged), pages that lose or repeat a schedule, a
prune that deletes more than the code gave up, tracebacks for a user's mistake, names that move the cursor.
"""

from __future__ import annotations

import asyncio
import functools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from redisched import Scheduler
from redisched.cli import common, schedules
from redisched.cli.schedules_show import neat, rule_in_short
from redisched.host.application import load_application
from redisched.ids import random_name
from redisched.plan import plan_name
from redisched.scheduler import Ticker
from redisched.settings import SchedulerSettings
from tests.support.servers import ServerProcess
from tests.support.shell import Answer, Shell

ODD = "Zürich ☃/{x}:é\x1b[2J\u2028💥"
SHOWN = "Zürich ☃/{x}:é\\u001b[2J\\u2028💥"
WEEKLY = ("--cron", "0 9 * * 1", "--tz", "America/New_York")
OCTOBER = ("--start", "2026-10-01T00:00:00Z", "--end", "2026-10-29T00:00:00Z")
CLEAR = "local n = 0 for _, key in ipairs(redis.call('KEYS', ARGV[1])) do n = n + redis.call('DEL', key) end return n"


@pytest.fixture
def server(server_of: Callable[[str], ServerProcess]) -> ServerProcess:
    return server_of("valkey")


@pytest.fixture
def shell(server: ServerProcess, capsys: pytest.CaptureFixture[str]) -> Iterator[Shell]:
    shell = Shell(server.url, capsys)
    yield shell
    server.command("EVAL", CLEAR, "0", f"*{shell.namespace}*")
    assert server.command("EVAL", CLEAR, "0", f"*{shell.namespace}*") == ":0"


def create(shell: Shell, name: str, *words: str) -> Answer:
    answer = shell("schedules", "create", name, "ok", *(words or ("--cron", "@daily")))
    assert answer.code == 0, answer.err
    return answer


def shows(shell: Shell, name: str, *words: str) -> dict[str, object]:
    found = shell("schedules", "show", name, *words, "--json").json
    assert isinstance(found, dict)
    return found


@contextmanager
def working(shell: Shell) -> Iterator[None]:
    """Somebody who makes and runs what is due, beside the command under test."""
    over = threading.Event()

    async def body() -> None:
        async with Scheduler(shell.url, namespace=shell.namespace) as sched:
            sched.job(name="ok")(_returns_text)
            while not over.is_set():
                await sched.run_until_idle()
                await asyncio.sleep(0.02)

    thread = threading.Thread(target=lambda: asyncio.run(body()))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(30)
        assert not thread.is_alive()


async def _returns_text() -> str:
    return "text"


# -- create


def test_create_says_created_unchanged_and_replaced(shell: Shell) -> None:
    # The same again is no change, whatever the order of its options.
    assert create(shell, "a", *WEEKLY).out.startswith("created schedule a, version 1; next 20")
    assert create(shell, "a", *WEEKLY[2:], *WEEKLY[:2]).out.startswith("unchanged schedule a, version 1; next 20")
    assert create(shell, "a", "--every", "10m").out.startswith("replaced schedule a, version 2; next 20")
    assert create(shell, "a", "--every", "600").out.startswith("unchanged schedule a, version 2; next 20")
    answers = [create(shell, "b", "--every", every, "--json").json for every in ("1h", "1h", "2h")]
    assert [(x["result"], x["version"], x["state"]) for x in answers] == [
        ("created", 1, "active"),
        ("unchanged", 1, "active"),
        ("replaced", 2, "active"),
    ]
    assert answers[0]["next_at"].endswith("Z")


def test_every_option_of_create_arrives(shell: Shell) -> None:
    words = ["schedules", "create", "a", "send", '{"to": "x"}', *WEEKLY, "--misfire", "all:24", "--grace", "2h"]
    words += ["--overlap", "allow:3", "--jitter", "5m", "--idempotency-key", "r-{week}", "--priority", "high"]
    words += ["--start", "2026-01-01T00:00:00+01:00", "--end", "2100-01-01T00:00:00Z", "--max-runs", "7"]
    assert shell(*words, "--tenant", "acme", "--if-version", "0").code == 0
    view = shows(shell, "a", "--tenant", "acme")
    assert view["rule"] == {
        "kind": "cron",
        "expr": "0 9 * * 1",
        "tz": "America/New_York",
        "start": "2025-12-31T23:00:00Z",
        "end": "2100-01-01T00:00:00Z",
        "max_runs": 7,
    }
    wanted = {"call": "send", "args": [[], {"to": "x"}], "misfire": "all:24", "grace": 7200, "overlap": "allow:3"}
    wanted |= {"jitter": 300, "idempotency_key": "r-{week}", "priority": "high", "tenant": "acme", "version": 1}
    assert {key: view[key] for key in wanted} == wanted


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        (
            ["--cron", "30 0 9 * * 1", "--seconds"],
            {"kind": "cron", "expr": "30 0 9 * * 1", "seconds": True, "tz": "UTC"},
        ),
        (["--every", "10m", "--after-completion"], {"kind": "every", "interval": 600, "after": "completion"}),
        (["--rrule", "FREQ=MONTHLY;BYDAY=-1FR"], {"kind": "rrule", "rule": "FREQ=MONTHLY;BYDAY=-1FR", "tz": "UTC"}),
    ],
)
def test_each_kind_of_rule(shell: Shell, words: list[str], rule: dict[str, object]) -> None:
    create(shell, "a", *words)
    assert shows(shell, "a")["rule"] == rule
    assert rule_in_short(rule) in shell("schedules", "list").out


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["a", "ok"], "one of the arguments --cron --every --rrule is required"),
        (["a", "ok", "--cron", "@daily", "--every", "1h"], "not allowed with"),
        (["a", "ok", "--cron", "61 * * * *"], "61 is not between 0 and 59"),
        (["a", "ok", "--cron", "* * * * *", "--tz", "Mars/Base"], "is not known"),
        (["a", "ok", "--cron", "* * * * * *"], "here --seconds"),
        (["a", "ok", "--every", "soon"], "5m"),
        (["a", "ok", "--every", "0"], "more than 0"),
        (["a", "ok", "--every", "10m", "--tz", "UTC"], "--tz goes with"),
        (["a", "ok", "--every", "10m", "--seconds"], "--seconds goes with"),
        (["a", "ok", "--cron", "@daily", "--after-completion"], "--after-completion goes with"),
        (["a", "ok", "--rrule", "FREQ=OFTEN"], "FREQ"),
        (["a", "ok", "--rrule", "FREQ=DAILY;INTERVAL=2"], "here with --start ISO"),
        (["a", "ok", "--cron", "@daily", "--misfire", "all"], "all:24"),
        (["a", "ok", "--cron", "@daily", "--misfire", "all:0"], "1 to 10,000"),
        (["a", "ok", "--cron", "@daily", "--overlap", "maybe"], "queue or cancel"),
        (["a", "ok", "--cron", "@daily", "--grace=-1h"], "grace is"),
        (["a", "ok", "--cron", "@daily", "--jitter", "x"], "is no delay"),
        (["a", "ok", "--every", "1h", "--after-completion", "--jitter", "1m"], "jitter does not go with"),
        (["a", "ok", "--cron", "@daily", "--idempotency-key", "k-{moon}"], "{moon} is none of"),
        (["a", "ok", "--cron", "@hourly", "--idempotency-key", "k-{date}"], "add a field that differs"),
        (["a", "ok", "--cron", "@daily", "--idempotency-key", "k\udcff"], "is not UTF-8"),
        (["a", "ok", "--cron", "@daily", "--priority", "urgent"], "invalid choice"),
        (["a", "ok", "--cron", "@daily", "--start", "tomorrow"], "ISO-8601"),
        (["a", "ok", "--cron", "@daily", "--end", "2100-01-01T00:00:00"], "time zone"),
        (["a", "ok", "--cron", "@daily", "--end", "2020-01-01T00:00:00Z"], "nothing of it is left"),
        (["a", "ok", "--cron", "@daily", "--max-runs", "0"], "from 1 to"),
        (["a", "ok", "--cron", "@daily", "--if-version", "-1"], "is no version"),
        (["a", "ok", "--cron", "@daily", "--if-version", "x"], "is no version"),
        (["a", "ok", "{1}", "--cron", "@daily"], "ARGS-JSON is not JSON"),
        (["a", "o k", "--cron", "@daily"], "a job's name is"),
        (["a b", "ok", "--cron", "@daily"], "a schedule's name is"),
        (["a", "ok", "--cron", "@daily", "--tenant", ""], "a tenant's name is"),
        (["a", "ok", "--cron", "@daily", "--tenant", "\udcff"], "half a surrogate pair"),
    ],
)
def test_a_bad_create_ends_with_2_and_says_why(shell: Shell, words: list[str], hint: str) -> None:
    answer = shell("schedules", "create", *words)
    assert (answer.code, answer.out) == (2, "")
    assert hint in answer.err
    assert shell("schedules", "list", "--json").json == {"schedules": [], "next": None}


def test_create_at_a_version_only(shell: Shell) -> None:
    late = shell("schedules", "create", "a", "ok", "--every", "1h", "--if-version", "3")
    assert (late.code, "does not exist" in late.err) == (1, True)
    create(shell, "a", "--every", "1h", "--if-version", "0")
    again = shell("schedules", "create", "a", "ok", "--every", "2h", "--if-version", "0")
    assert (again.code, "is at version 1" in again.err) == (1, True)
    assert create(shell, "a", "--every", "2h", "--if-version", "1", "--json").json["result"] == "replaced"


def test_a_quota_that_is_used_up_ends_with_1(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    create(shell, "a")
    monkeypatch.setattr(common, "Scheduler", functools.partial(Scheduler, max_schedules=1))
    answer = shell("schedules", "create", "b", "ok", "--every", "1h")
    assert (answer.code, answer.out, "delete some" in answer.err) == (1, "", True)
    assert create(shell, "a", "--every", "1h").out.startswith("replaced")


def test_a_replaced_schedule_stays_paused_and_says_so(shell: Shell) -> None:
    create(shell, "a", "--every", "1h")
    shell("schedules", "pause", "a")
    assert create(shell, "a", "--every", "2h").out.endswith("; it is paused\n")


# -- list


def test_pages_lose_and_repeat_nothing(shell: Shell) -> None:
    made = [("acme", "a"), ("acme", "b"), ("default", "a"), ("default", "c"), (ODD, "x"), ("z" * 128, "y")]
    for tenant, name in made:
        create(shell, name, "--cron", "@daily", "--tenant", tenant)
    seen, after = [], []
    while True:
        page = shell("schedules", "list", "--limit", "1", *after, "--json").json
        seen += [(view["tenant"], view["name"]) for view in page["schedules"]]
        if page["next"] is None:
            break
        text = shell("schedules", "list", "--limit", "1", *after).out.splitlines()[-1]
        assert text == f"more: the same with --after {page['next']}"
        after = ["--after", page["next"]]
    assert sorted(seen) == sorted(made)
    first = shell("schedules", "list", "--tenant", "acme", "--limit", "1", "--json").json
    assert ([view["name"] for view in first["schedules"]], first["next"]) == (["a"], "a")
    last = shell("schedules", "list", "--tenant", "acme", "--limit", "1", "--after", "a", "--json").json
    assert ([view["name"] for view in last["schedules"]], last["next"]) == (["b"], None)


def test_the_list_for_a_human(shell: Shell) -> None:
    assert shell("schedules", "list").out == "no such schedules\n"
    create(shell, "often", "--every", "3h")
    create(shell, "weekly", *WEEKLY)
    create(shell, "still", "--cron", "@daily")
    shell("schedules", "pause", "still")
    head, often, still, weekly = shell("schedules", "list").out.splitlines()
    assert head.split() == ["name", "tenant", "state", "next", "at", "call", "rule"]
    assert "in 2 h 59 min" in often
    assert often.endswith("every 3 h")
    assert weekly.endswith("0 9 * * 1 America/New_York")
    assert still.split()[2:4] == ["paused", "-"], "it has a time, but does not fire then"


@pytest.mark.parametrize(
    "words",
    [
        ["--after", "a"],
        ["--after", "a/ b"],
        ["--after", "\udcff/a"],
        ["--after", "a/b", "--tenant", "t"],
        ["--limit", "0"],
    ],
)
def test_a_bad_page_ends_with_2(shell: Shell, words: list[str]) -> None:
    answer = shell("schedules", "list", *words)
    assert (answer.code, answer.out) == (2, "")


# -- show


def test_show_tells_all_of_it(shell: Shell) -> None:
    create(shell, "a", *WEEKLY, "--misfire", "all:24", "--overlap", "allow:3", "--jitter", "5m", "--grace", "6h")
    text = shell("schedules", "show", "a").out
    for part in (
        "no worker or scheduler is alive",
        "At 09:00 on Monday, America/New_York time.",
        "all:24: each of those missed, the newest 24",
        "grace      6 h",
        "up to 3 run beside each other",
        "up to 5 min; the next one starts at 20",
        "made 0, missed 0, skipped 0",
        "made by hand",
        "version    1",
    ):
        assert part in text
    assert text.count("Mon 20") == 5
    view = shows(shell, "a")
    times = view["next_times"]
    assert isinstance(times, list)
    assert len(times) == 5
    assert times[0] == view["next_at"]
    assert view["runs"] == []
    assert str(view["explanation"]).startswith("it fires in ")


def test_show_says_why_it_does_not_fire(shell: Shell) -> None:
    create(shell, "a", "--every", "1h")
    shell("schedules", "pause", "a", "--note", "provider down\x1b[2J")
    text = shell("schedules", "show", "a").out
    assert r"it is paused: provider down\u001b[2J; `redisched schedules resume` lets it go on" in text
    create(shell, "late", "--every", "1s", "--tenant", "t")
    wait_for(lambda: "it is due for" in str(shows(shell, "late", "--tenant", "t")["explanation"]))
    create(shell, "once", "--every", "1s", "--max-runs", "1")
    wait_for(lambda: (shell.work(), shows(shell, "once")["state"] == "ended")[1])
    assert "it has no more times" in shell("schedules", "show", "once").out
    assert shows(shell, "once")["next_times"] == []


def test_one_that_counts_from_its_end_knows_one_time_at_most(shell: Shell) -> None:
    create(shell, "a", "--every", "10m", "--after-completion")
    view = shows(shell, "a")
    assert view["next_times"] == [view["next_at"]]
    create(shell, "b", "--every", "1s", "--after-completion")
    wait_for(lambda: (tick(shell), shows(shell, "b")["waits_for"])[1])
    text = shell("schedules", "show", "b").out
    assert "it waits: the end of its run" in text
    assert "counted from the end of its run" in text
    assert "living     b@" in text


def test_show_names_only_what_lives(shell: Shell) -> None:
    create(shell, "a", "--every", "1h")
    job_id = shell("schedules", "trigger", "a").out.strip()
    assert shows(shell, "a")["living"] == [job_id]
    shell.work()
    assert shows(shell, "a")["living"] == []
    assert "living" not in shell("schedules", "show", "a").out


def test_a_broken_schedule_is_shown_and_can_be_replaced(shell: Shell, server: ServerProcess) -> None:
    create(shell, "a", "--every", "1h", "--tenant", ODD)
    breaks = "for _, k in ipairs(redis.call('KEYS', ARGV[1])) do redis.call('HSET', k, ARGV[2], 'x') end return 1"
    server.command("EVAL", breaks, "0", f"*{shell.namespace}:*}}:plan", plan_name(ODD, "a"))
    text = shell("schedules", "show", "a", "--tenant", ODD).out
    assert "state      broken" in text
    assert "create it again, or delete it" in text
    assert "broken" in shell("schedules", "list").out
    create(shell, "b", "--every", "1h", "--tenant", ODD)
    page = shell("schedules", "list", "--limit", "1", "--json").json
    rest = shell("schedules", "list", "--after", page["next"], "--json").json
    assert [view["name"] for view in rest["schedules"]] == ["b"]
    assert create(shell, "a", "--every", "1h", "--tenant", ODD).out.startswith("replaced")
    assert shows(shell, "a", "--tenant", ODD)["state"] == "active"


# -- pause, resume, trigger, delete, runs


def test_pause_and_resume_once_and_again(shell: Shell) -> None:
    create(shell, "a", "--every", "1h")
    assert shell("schedules", "pause", "a", "--note", "why").out == "paused schedule a, version 2\n"
    assert shell("schedules", "pause", "a").out == "paused already: schedule a, version 2\n"
    assert shell("schedules", "pause", "a", "--note", "because").out == "changed the note of schedule a, version 3\n"
    assert shows(shell, "a")["note"] == "because"
    again = shell("schedules", "pause", "a", "--json").json
    assert again == {"name": "a", "tenant": "default", "state": "paused", "changed": False, "version": 3}
    answer = shell("schedules", "resume", "a", "--json").json
    assert (answer["state"], answer["changed"], answer["version"]) == ("active", True, 4)
    assert shell("schedules", "resume", "a").out == "not paused: schedule a, version 4\n"
    for note in ("x" * 501, "\udcff"):
        assert shell("schedules", "pause", "a", "--note", note).code == 2
    assert shows(shell, "a")["state"] == "active"


def test_trigger_prints_the_id_of_a_job_that_runs(shell: Shell) -> None:
    create(shell, "a", "--every", "1h")
    shell("schedules", "pause", "a")
    job_id = shell("schedules", "trigger", "a").out.strip()
    assert shell("jobs", "show", job_id, "--json").json["state"] == "ready"
    answer = shell("schedules", "trigger", "a", "--json").json
    assert answer == {"name": "a", "tenant": "default", "id": answer["id"], "call": "ok"}
    shell.work()
    assert {run["job_id"] for run in shell("schedules", "runs", "a", "--json").json} == {job_id, answer["id"]}


def test_runs_for_a_human_and_a_program(shell: Shell) -> None:
    create(shell, "a", "--every", "1h")
    assert shell("schedules", "runs", "a").out == "no runs yet\n"
    assert shell("schedules", "runs", "a", "--json").json == []
    assert shell("schedules", "create", "b", "bad", "[3]", "--every", "1h").code == 0
    for name in ("a", "b", "b"):
        shell("schedules", "trigger", name)
    shell.work()
    head, row = shell("schedules", "runs", "a").out.splitlines()
    assert head.split()[:7] == ["nominal", "outcome", "attempt", "started", "duration", "worker", "result"]
    assert row.split()[:3] == ["triggered", "done", "1"]
    text = shell("schedules", "runs", "b").out
    assert r"ValueError: bad 3\u001b[2J" in text
    assert "the last 1; more with --limit" in shell("schedules", "runs", "b", "--limit", "1").out
    (run,) = shell("schedules", "runs", "a", "--json").json
    assert (run["outcome"], run["attempt"], run["result_bytes"] > 0) == ("done", 1, True)
    assert "last runs\nnominal" in shell("schedules", "show", "b").out


def test_delete_leaves_nothing_of_it(shell: Shell, server: ServerProcess) -> None:
    create(shell, "a", "--every", "1h")
    shell("schedules", "trigger", "a")
    shell.work()
    shell("schedules", "backfill", "a", *OCTOBER)
    assert shell("schedules", "delete", "a").out.startswith("deleted schedule a and its history")
    for word in ("plan", "planned", "plans", "roster", "history:*"):
        count = server.command("EVAL", "return #redis.call('KEYS', ARGV[1])", "0", f"*{shell.namespace}:*}}:{word}")
        assert (word, count) == (word, ":0")
    create(shell, "a", "--every", "1h")
    answer = shell("schedules", "delete", "a", "--json").json
    assert answer == {"name": "a", "tenant": "default", "deleted": True}


@pytest.mark.parametrize("verb", ["show", "pause", "resume", "trigger", "delete", "runs", "backfill", "stop"])
def test_a_schedule_that_is_not_there_is_one_line_and_1(shell: Shell, verb: str) -> None:
    create(shell, "a", "--every", "1h", "--tenant", "acme")  # the same name, somebody else's
    more = {"backfill": OCTOBER, "stop": ("--stop",)}.get(verb, ())
    verb = "backfill" if verb == "stop" else verb
    answer = shell("schedules", verb, "a", *more, "--json")
    assert (answer.code, answer.out) == (1, "")
    assert answer.err.startswith(
        "redisched: error: tenant 'default' has no schedule 'a': see `redisched schedules list"
    )
    assert len(answer.err.splitlines()) == 1
    for words, hint in (["a b"], "a schedule's name is"), (["a", "--tenant", "\udcff"], "half a surrogate"):
        wrong = shell("schedules", verb, *words, *more)
        assert (wrong.code, hint in wrong.err) == (2, True)
    assert shows(shell, "a", "--tenant", "acme")["version"] == 1


def test_a_tenant_with_an_odd_name(shell: Shell) -> None:
    whose = ("--tenant", ODD)
    answers = [create(shell, "a", "--every", "1h", *whose)]
    answers += [shell("schedules", verb, "a", *whose) for verb in ("pause", "resume", "show", "trigger")]
    shell.work()
    answers += [shell("schedules", "backfill", "a", *OCTOBER, *whose), shell("schedules", "runs", "a", *whose)]
    answers += [
        shell("schedules", "list", *whose),
        shell("schedules", "list"),
        shell("schedules", "delete", "a", *whose),
    ]
    assert [answer.code for answer in answers] == [0] * len(answers)
    assert not any("\x1b" in answer.out + answer.err for answer in answers)
    assert SHOWN in answers[0].out
    assert "done" in answers[6].out
    gone = shell("schedules", "show", "a", *whose)
    assert (gone.code, "\x1b" in gone.err) == (1, False)


# -- backfill


def test_backfill_begins_is_seen_and_stops(shell: Shell) -> None:
    create(shell, "a", *WEEKLY)
    assert shell("schedules", "backfill", "a", *OCTOBER).out.startswith(
        "backfill of a began: 4 occurrences from 2026-10"
    )
    assert shows(shell, "a")["backfill"] == {
        "made": 0,
        "total": 4,
        "next_at": "2026-10-05T13:00:00.000Z",
        "until": "2026-10-29T00:00:00.000Z",
    }
    assert "made 0 of 4, now at 2026-10-05T13" in shell("schedules", "show", "a").out
    second = shell("schedules", "backfill", "a", *OCTOBER)
    assert (second.code, "is under way" in second.err) == (2, True)
    assert shell("schedules", "backfill", "a", "--stop").out == "backfill of a: stopped after 0 were made\n"
    none = shell("schedules", "backfill", "a", "--stop", "--json")
    assert (none.code, none.json["stopped"]) == (1, False)
    assert shows(shell, "a")["backfill"] is None


def test_backfill_waits_and_tells_how_far_it_is(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedules, "TELL_S", 0.0)
    monkeypatch.setattr(schedules, "LOOK_S", 0.02)
    create(shell, "a", *WEEKLY)
    with working(shell):
        answer = shell("schedules", "backfill", "a", *OCTOBER, "--wait", "--json")
    assert answer.json == {"name": "a", "tenant": "default", "total": 4, "ended": True}
    lines = answer.err.splitlines()
    assert lines
    assert set(lines) <= {f"made {n} of 4" for n in range(5)}
    assert lines == sorted(set(lines)), "each once, and never back"
    shell.work()
    nominal = [run["nominal_at"] for run in shell("schedules", "runs", "a", "--json").json]
    assert nominal == [f"2026-10-{day}T13:00:00.000Z" for day in ("26", "19", "12", "05")]


def test_backfill_says_that_nobody_is_there(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedules, "STUCK_S", 0.0)
    create(shell, "a", *WEEKLY)
    with working(shell):  # its inline worker is no member, as a host would be
        answer = shell("schedules", "backfill", "a", *OCTOBER, "--wait")
    assert answer.err.count("no worker or scheduler is alive") == 1
    assert answer.out.startswith("backfill of a has ended: 4 occurrences")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ([], "say which times"),
        (OCTOBER[:2], "say which times"),
        ([*OCTOBER, "--stop"], "goes with no other option"),
        (["--stop", "--wait"], "goes with no other option"),
        (["--start", "2026-10-01", "--end", "2026-10-02T00:00:00Z"], "has no time zone"),
        (["--start", "x", "--end", "y"], "ISO-8601"),
        (["--start", "2026-10-02T00:00:00Z", "--end", "2026-10-01T00:00:00Z"], "is before the start"),
        (["--start", "2026-10-01T00:00:00Z", "--end", "2026-10-01T00:00:01Z"], "has no times from"),
    ],
)
def test_a_bad_backfill_ends_with_2(shell: Shell, words: list[str], hint: str) -> None:
    create(shell, "a", *WEEKLY)
    answer = shell("schedules", "backfill", "a", *words)
    assert (answer.code, answer.out) == (2, "")
    assert hint in answer.err
    assert shows(shell, "a")["backfill"] is None


# -- prune

HEAD = "from datetime import timedelta\nfrom redisched import Scheduler\nsched = Scheduler(namespace={namespace!r})\n"
DECLARES = "@sched.every(timedelta(hours=1), tenant={tenant!r})\nasync def {name}() -> None: ...\n"


class Application:
    """A module that is written anew, and the schedules its workers put in place."""

    def __init__(self, shell: Shell, folder: Path) -> None:
        self._shell = shell
        self.module = f"app_{random_name(8)}"
        self.path = f"{self.module}:sched"
        self._file = folder / f"{self.module}.py"

    def write(self, *declared: tuple[str, str]) -> None:
        parts = [DECLARES.format(tenant=tenant, name=name) for tenant, name in declared]
        self._file.write_text(HEAD.format(namespace=self._shell.namespace) + "".join(parts))
        sys.modules.pop(self.module, None)
        for compiled in self._file.parent.glob("__pycache__/*"):
            compiled.unlink()  # written within the same second, the old one would pass for the new

    def start(self) -> None:
        """What a worker does first."""

        async def body() -> None:
            sched = load_application(self.path)
            sched.use(self._shell.url)
            async with sched:
                await sched.put_schedules(self.path)

        asyncio.run(body())
        sys.modules.pop(self.module, None)

    def prune(self, *words: str) -> Answer:
        sys.modules.pop(self.module, None)
        return self._shell("schedules", "prune", self.path, *words)


@pytest.fixture
def app(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Application:
    monkeypatch.syspath_prepend(str(tmp_path))
    return Application(shell, tmp_path)


def names(shell: Shell) -> list[str]:
    return [view["name"] for view in shell("schedules", "list", "--json").json["schedules"]]


def test_prune_lists_and_deletes_only_with_yes(shell: Shell, app: Application) -> None:
    app.write(("default", "stays"), ("default", "goes"), (ODD, "odd"))
    app.start()
    create(shell, "hand", "--every", "1h")
    assert app.prune().out.startswith(f"nothing to prune: {app.path} still declares")
    app.write(("default", "stays"), ("default", "new"))
    listed = app.prune()
    assert (listed.code, "2 schedules to delete: the same with --yes does so" in listed.out) == (0, True)
    assert SHOWN in listed.out
    assert sorted(names(shell)) == ["goes", "hand", "odd", "stays"], "it deletes nothing, and puts nothing in place"
    answer = app.prune("--json").json
    assert answer["deleted"] is False
    assert {(one["tenant"], one["name"]) for one in answer["undeclared"]} == {("default", "goes"), (ODD, "odd")}
    assert app.prune("--tenant", ODD, "--yes").out.endswith("deleted 1 schedule\n")
    assert sorted(names(shell)) == ["goes", "hand", "stays"]
    assert app.prune("--yes", "--json").json == {
        "app": app.path,
        "undeclared": [{"name": "goes", "tenant": "default"}],
        "deleted": True,
    }
    assert sorted(names(shell)) == ["hand", "stays"]
    assert app.prune("--yes", "--json").json["undeclared"] == []


def test_prune_spares_what_somebody_replaced_by_hand(shell: Shell, app: Application) -> None:
    app.write(("default", "mine"))
    app.start()
    warned = create(shell, "mine", "--every", "2h")
    assert f"{app.path} declares it in code" in warned.err
    app.write()
    assert app.prune("--yes", "--json").json["undeclared"] == []
    assert names(shell) == ["mine"]


def test_what_code_declares_says_so(shell: Shell, app: Application) -> None:
    app.write(("default", "mine"))
    app.start()
    assert f"{app.path} declares it in code" in shell("schedules", "show", "mine").out
    assert "its workers put it back" in shell("schedules", "delete", "mine").err


@pytest.mark.parametrize(
    ("path", "hint"),
    [("app", "module:scheduler"), ("no_such_module_x:sched", "there is no module"), ("json:x", "not a")],
)
def test_prune_of_no_application_ends_with_2(shell: Shell, path: str, hint: str) -> None:
    answer = shell("schedules", "prune", path)
    assert (answer.code, answer.out, hint in answer.err) == (2, "", True)


# -- stats and words


def test_stats_count_schedules(shell: Shell) -> None:
    assert "schedules none" in shell("stats").out
    create(shell, "a", "--every", "1h")
    create(shell, "b", "--every", "2h", "--tenant", "acme")
    shell("schedules", "pause", "b", "--tenant", "acme")
    text = shell("stats").out
    assert "schedules 2, of these 1 enabled; next 20" in text
    assert "in 59 min" in text
    found = shell("stats", "--json").json
    assert (found["schedules"], found["schedules_enabled"]) == (2, 1)
    assert found["next_schedule"] == shows(shell, "a")["next_at"]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (0.5, "500 ms"), (30, "30 s"), (1.5, "1.5 s"), (600, "10 min"), (10_800, "3 h"), (86_400, "1 d")],
)
def test_a_neat_span(seconds: float, words: str) -> None:
    assert neat(seconds) == words


def test_a_long_rule_is_cut() -> None:
    rule = {"kind": "rrule", "rule": "FREQ=YEARLY;BYMONTHDAY=" + ",".join(map(str, range(1, 31))), "tz": "UTC"}
    assert len(rule_in_short(rule)) == 60
    assert rule_in_short({}) == "?"


def wait_for(condition: Callable[[], object]) -> None:
    give_up = datetime.now(UTC) + timedelta(seconds=20)
    while not condition():
        assert datetime.now(UTC) < give_up, "it did not come about"


def tick(shell: Shell) -> None:
    """Makes what is due, and runs nothing."""

    async def body() -> None:
        async with Scheduler(shell.url, namespace=shell.namespace) as sched:
            for shard in range(sched.store.shards):
                await Ticker(sched.store, shard, SchedulerSettings()).run_once()

    asyncio.run(body())
