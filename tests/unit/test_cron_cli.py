"""`redisched cron`: what it prints and how it fails."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable

import pytest

from redisched.cli import cron

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    parser = argparse.ArgumentParser("redisched")
    cron.add(parser.add_subparsers())

    def call(*argv: str) -> tuple[int, str, str]:
        args = parser.parse_args(["cron", *argv])
        code = args.run(args)
        out, err = capsys.readouterr()
        return code, out, err

    return call


def test_json_is_one_list_and_nothing_else(call: Call) -> None:
    code, out, err = call(
        "0 9 * * 1", "--tz", "America/New_York", "--after", "2026-03-01T00:00:00Z", "--count", "5", "--json"
    )
    assert (code, err) == (0, "")
    assert json.loads(out) == [
        "2026-03-02T14:00:00Z",
        "2026-03-09T13:00:00Z",
        "2026-03-16T13:00:00Z",
        "2026-03-23T13:00:00Z",
        "2026-03-30T13:00:00Z",
    ]
    assert out.count("\n") == 1


def test_the_table_has_local_times_and_words(call: Call) -> None:
    code, out, err = call("30 2 * * *", "--tz", "Europe/Berlin", "--after", "2026-03-28T00:00:00+01:00", "--count", "3")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "At 02:30, Europe/Berlin time.",
        "",
        "local time (Europe/Berlin)     UTC",
        "Sat 2026-03-28 02:30:00+01:00  2026-03-28T01:30:00Z",
        "Sun 2026-03-29 03:00:00+02:00  2026-03-29T01:00:00Z",
        "Mon 2026-03-30 02:30:00+02:00  2026-03-30T00:30:00Z",
    ]


def test_the_default_is_from_now_on(call: Call) -> None:
    code, out, _ = call("* * * * *", "--json")
    assert code == 0
    assert len(json.loads(out)) == 5


def test_seconds_by_choice(call: Call) -> None:
    code, out, _ = call("*/20 * * * * *", "--seconds", "--after", "2026-01-01T00:00:00Z", "--count", "2", "--json")
    assert (code, json.loads(out)) == (0, ["2026-01-01T00:00:20Z", "2026-01-01T00:00:40Z"])


def test_the_end_of_the_calendar(call: Call) -> None:
    after = ("--after", "9999-12-31T23:58:30Z")
    assert json.loads(call("* * * * *", *after, "--json")[1]) == ["9999-12-31T23:59:00Z"]
    code, out, err = call("* * * * *", *after, "--tz", "Asia/Tokyo")
    assert (code, err) == (0, "")
    assert "does not fire any more" in out
    code, out, err = call("* * * * *", *after, "--tz", "America/New_York")
    assert (code, err) == (0, "")
    assert "9999-12-31T23:59:00Z" in out


@pytest.mark.parametrize("more", [(), ("--json",)])
@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("61 * * * *",), "minute '61'"),
        (("-1 * * * *",), "minute '-1'"),
        (("",), "0 fields"),
        (("0 0 30 2 *",), "never"),
        (("* * * * *", "--tz", "Europe/Berln"), "did you mean 'Europe/Berlin'?"),
        (("* * * * *", "--after", "soon"), "--after 'soon'"),
        (("* * * * *", "--after", "2026-01-01T00:00:00"), "has no time zone"),
        (("* * * * *", "--count", "0"), "--count '0'"),
        (("* * * * *", "--count", "many"), "--count 'many'"),
        (("* * * * *", "--count", "99999999"), "--count '99999999'"),
        (("* * * * * *",), "6 fields"),
        (("* * * * *", "--seconds"), "5 fields"),
    ],
)
def test_errors_are_one_line_on_stderr(call: Call, argv: tuple[str, ...], words: str, more: tuple[str, ...]) -> None:
    code, out, err = call(*argv, *more)
    assert (code, out) == (2, "")
    assert err.startswith("redisched: error: ")
    assert words in err
    assert err.count("\n") == 1
