"""Idempotency keys of occurrences, from a template and the nominal time in the schedule's zone. Pure."""

from __future__ import annotations

import string
from collections.abc import Callable
from datetime import datetime
from typing import Final

from redisched.errors import InvalidSchedule

MAX_KEY_CHARS: Final = 512

_TIMES: Final[dict[str, Callable[[datetime], str]]] = {
    "year": lambda t: f"{t.year:04}",
    "quarter": lambda t: f"{t.year:04}-Q{(t.month + 2) // 3}",
    "month": lambda t: f"{t:%Y-%m}",
    "week": lambda t: "{}-W{:02}".format(*t.isocalendar()[:2]),
    "date": lambda t: f"{t:%Y-%m-%d}",
    "day": lambda t: f"{t:%Y-%m-%d}",
    "weekday": lambda t: f"{t:%a}".lower(),
    "hour": lambda t: f"{t:%Y-%m-%dT%H}",
    "minute": lambda t: f"{t:%Y-%m-%dT%H:%M}",
    "second": lambda t: f"{t:%Y-%m-%dT%H:%M:%S}",
    "time": lambda t: f"{t:%H:%M}",
    "offset": lambda t: f"{t:%z}",
    "timestamp": lambda t: str(round(t.timestamp() * 1000)),
}
FIELDS: Final = (*_TIMES, "tenant", "schedule")


def is_text(value: str) -> bool:
    """Half a surrogate pair is no character, and cannot be stored."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_template(template: str) -> None:
    """Refuses what `render` could not fill in."""
    if not isinstance(template, str) or not 0 < len(template) <= MAX_KEY_CHARS or not is_text(template):
        raise InvalidSchedule(f"idempotency_key is a template of 1 to {MAX_KEY_CHARS} characters, not {template!r:.80}")
    try:
        parts = list(string.Formatter().parse(template))
    except ValueError as error:
        raise InvalidSchedule(f"idempotency_key {template!r}: {error}; write {{{{ for a brace") from None
    for _, field, spec, conversion in parts:
        if field is not None and (field not in FIELDS or spec or conversion):
            known = ", ".join(f"{{{name}}}" for name in FIELDS)
            raise InvalidSchedule(f"idempotency_key {template!r}: {{{field}}} is none of {known}")


def render(template: str, nominal: datetime, tenant: str, schedule: str) -> str:
    """The key of one occurrence. `nominal` is in the schedule's zone."""
    key = ""
    for text, field, _, _ in string.Formatter().parse(template):
        key += text
        if field == "tenant":
            key += tenant
        elif field == "schedule":
            key += schedule
        elif field is not None:
            key += _TIMES[field](nominal)
    return key
