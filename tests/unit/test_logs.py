"""Log lines: tries to break them with text that forges fields, ends lines or cannot be printed at all."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from redisched import logs
from redisched.errors import ConfigError


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root, asyncio_log = logging.getLogger(), logging.getLogger("asyncio")
    handlers, level, other = root.handlers[:], root.level, asyncio_log.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    asyncio_log.setLevel(other)


def record(message: str = "job failed", /, **extra: Any) -> logging.LogRecord:
    made = logging.LogRecord("redisched.worker", logging.WARNING, __file__, 1, message, None, None)
    made.created = 1_795_000_000.123
    vars(made).update(extra)
    return made


def text(message: str = "job failed", /, **extra: Any) -> str:
    return logs.TextFormatter().format(record(message, **extra))


def as_json(message: str = "job failed", /, **extra: Any) -> dict[str, Any]:
    line = logs.JsonFormatter().format(record(message, **extra))
    assert "\n" not in line
    found: dict[str, Any] = json.loads(line)
    return found


def test_a_text_line_names_time_level_logger_and_fields() -> None:
    line = text("job failed, will be tried again", job="8f2", tenant="acme", attempt=2, error="a b")
    assert line == (
        "2026-11-18T11:06:40.123Z WARN redisched.worker job failed, will be tried again "
        'job=8f2 tenant=acme attempt=2 error="a b"'
    )


def test_a_json_line_has_all_fields_with_their_types() -> None:
    line = as_json(job="8f2", attempt=2, tenant="ac\nme", nested={"a": [1]})
    assert line == {
        "time": "2026-11-18T11:06:40.123Z",
        "level": "WARN",
        "logger": "redisched.worker",
        "message": "job failed",
        "job": "8f2",
        "attempt": 2,
        "tenant": "ac\nme",
        "nested": {"a": [1]},
    }


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("", '""'),
        ("x y=z", '"x y=z"'),
        ('say "hi"', r'"say \"hi\""'),
        ("two\nlines", r'"two\nlines"'),
        ("\x1b[31mred", r'"\u001b[31mred"'),
        ("a\x85b", r'"a\u0085b"'),
        ("line\u2028sep", r'"line\u2028sep"'),
        ("żółw", "żółw"),
        (None, "None"),
        (1.5, "1.5"),
    ],
)
def test_no_value_can_end_a_line_or_forge_a_field(value: Any, expected: str) -> None:
    line = text(x=value)
    assert line.endswith(f" x={expected}")
    assert len(line.splitlines()) == 1


def test_a_message_of_many_lines_stays_one_line() -> None:
    assert len(text("a\nb\r\nc\u2029d").splitlines()) == 1


def test_an_exception_becomes_a_field() -> None:
    try:
        raise ValueError("first\nsecond")
    except ValueError:
        made = record(exc_info=sys.exc_info())
    line = logs.TextFormatter().format(made)
    assert len(line.splitlines()) == 1
    assert 'traceback="Traceback' in line
    assert r"ValueError: first\nsecond" in line
    assert "ValueError: first\nsecond" in json.loads(logs.JsonFormatter().format(made))["traceback"]


def test_values_that_cannot_be_printed_or_encoded_do_not_stop_the_line() -> None:
    class Broken:
        def __str__(self) -> str:
            raise RuntimeError("no")

    circle: list[Any] = []
    circle.append(circle)
    assert "x=<Broken: RuntimeError>" in text(x=Broken()).replace('"', "")
    assert as_json(x=Broken(), raw=b"\xff")["x"] == "<Broken: RuntimeError>"
    assert as_json(x=float("nan"))["x"] == "nan"
    assert as_json(x=circle)["x"] == "[[...]]"
    assert as_json(x={1: 2, (3, 4): 5})["message"] == "job failed"


def test_a_field_cannot_replace_the_lines_own() -> None:
    assert as_json(level="high", time="noon")["level"] == "WARN"
    assert as_json(level="high")["extra_level"] == "high"


def test_setup_replaces_itself_and_writes_to_stderr_of_the_moment(capsys: pytest.CaptureFixture[str]) -> None:
    before = len(logging.getLogger().handlers)
    logs.setup("INFO", "text")
    logs.setup("warning", "json")
    assert len(logging.getLogger().handlers) == before + 1
    log = logging.getLogger("redisched.test")
    log.info("not shown")
    log.warning("shown", extra={"job": "x"})
    out, err = capsys.readouterr()
    assert out == ""
    assert [json.loads(line)["message"] for line in err.splitlines()] == ["shown"]


@pytest.mark.parametrize(("level", "style"), [("loud", "text"), ("info", "xml")])
def test_a_wrong_level_or_style_is_refused(level: str, style: str) -> None:
    with pytest.raises(ConfigError, match="is not one of"):
        logs.setup(level, style)
