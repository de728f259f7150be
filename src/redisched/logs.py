"""Structured log lines for the processes of the `redisched` command. Floor 1.

The library itself only calls `logging` with `extra=` fields; an application that embeds it keeps its
own set-up. A record is always one line, whatever is in it: an exception's traceback becomes a field.

    2026-11-18T11:00:00.123Z WARN redisched.worker job failed, will be tried again job=8f2 attempt=2
"""

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

from redisched.errors import ConfigError

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
STYLES = ("text", "json")

# What every record carries; any other attribute came by `extra=`.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_LEVEL_WORDS = {"WARNING": "WARN", "CRITICAL": "FATAL"}
_BARE = re.compile(r"[^\s\"'=\\\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_JSON_KEYS = ("time", "level", "logger", "message")


def setup(level: str, style: str) -> None:
    """Sends all log records of this process to stderr, as `text` or `json` lines. Again: replaces itself."""
    if level.lower() not in LEVELS:
        raise ConfigError(f"log level {level!r} is not one of {', '.join(LEVELS)}")
    if style not in STYLES:
        raise ConfigError(f"log style {style!r} is not one of {', '.join(STYLES)}")
    handler = _Stderr()
    handler.setFormatter(TextFormatter() if style == "text" else JsonFormatter())
    root = logging.getLogger()
    for old in root.handlers[:]:
        if isinstance(old.formatter, TextFormatter | JsonFormatter):
            root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(LEVELS[level.lower()])
    # asyncio says at INFO and below which selector it uses, on every start
    logging.getLogger("asyncio").setLevel(max(logging.WARNING, LEVELS[level.lower()]))


class _Stderr(logging.StreamHandler[TextIO]):
    """Writes to what `sys.stderr` is at that moment, not what it was at set-up: tests replace it."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        return sys.stderr


class TextFormatter(logging.Formatter):
    """`<time> <LEVEL> <logger> <message> key=value ...`: for people, and for grep."""

    def format(self, record: logging.LogRecord) -> str:
        words = [_time(record), _level(record), record.name, _one_line(record.getMessage())]
        words += [f"{key}={_bare_or_quoted(value)}" for key, value in _fields(self, record).items()]
        return " ".join(words)


class JsonFormatter(logging.Formatter):
    """One JSON object a line: for machines."""

    def format(self, record: logging.LogRecord) -> str:
        head = (_time(record), _level(record), record.name, record.getMessage())
        line: dict[str, Any] = dict(zip(_JSON_KEYS, head, strict=True))
        for key, value in _fields(self, record).items():
            line[f"extra_{key}" if key in _JSON_KEYS else key] = value
        try:
            return json.dumps(line, ensure_ascii=False, default=_text, allow_nan=False)
        except (TypeError, ValueError):
            # NaN, a key that is no string, a circle: a log line must come out all the same
            return json.dumps({key: v if isinstance(v, str) else _text(v) for key, v in line.items()})


def _fields(formatter: logging.Formatter, record: logging.LogRecord) -> dict[str, Any]:
    fields = {key: value for key, value in vars(record).items() if key not in _STANDARD}
    if record.exc_info and record.exc_info[0] is not None:
        fields["traceback"] = formatter.formatException(record.exc_info)
    if record.stack_info:
        fields["stack"] = formatter.formatStack(record.stack_info)
    return fields


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, tz=UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _level(record: logging.LogRecord) -> str:
    return _LEVEL_WORDS.get(record.levelname, record.levelname)


def _bare_or_quoted(value: Any) -> str:
    text = _text(value)
    # JSON's quoting: what stands between the quotes cannot end the line or forge another field
    return text if _BARE.fullmatch(text) else _one_line(json.dumps(text, ensure_ascii=False))


def _text(value: Any) -> str:
    try:
        return str(value)
    except Exception as error:  # a broken __str__ of an application's object must not stop its worker
        return f"<{type(value).__name__}: {type(error).__name__}>"


def _one_line(text: str) -> str:
    return re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]", lambda m: json.dumps(m[0])[1:-1], text)
