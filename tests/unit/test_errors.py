"""Errors: tries to find one outside the tree, one without what its caller needs, and one that says nothing."""

from __future__ import annotations

import copy
import inspect
from typing import Any

import pytest

from redisched import errors

CLASSES = [c for _, c in inspect.getmembers(errors, inspect.isclass) if c.__module__ == errors.__name__]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_one_root_catches_all(kind: type[Exception]) -> None:
    # `except RedischedError` is what the documentation promises.
    assert issubclass(kind, errors.RedischedError)
    assert kind.__doc__, "an error explains itself"


@pytest.mark.parametrize(
    ("kind", "builtin"),
    [(errors.InvalidCall, TypeError), (errors.InvalidSchedule, ValueError)],
    ids=lambda k: k.__name__,
)
def test_wrong_arguments_are_also_what_python_calls_them(kind: Any, builtin: Any) -> None:
    # A caller that knows nothing of redisched catches TypeError for a wrong argument.
    assert issubclass(kind, builtin)


@pytest.mark.parametrize(
    ("error", "carries", "says"),
    [
        (
            errors.PayloadTooLarge("mail", 70_000, 65_536),
            {"name": "mail", "size": 70_000, "limit": 65_536},
            ["'mail'", "70,000", "65,536", "max_payload_bytes"],
        ),
        (
            errors.JobFailed("k-1", "ValueError: x"),
            {"job_id": "k-1", "error": "ValueError: x"},
            ["k-1", "ValueError: x"],
        ),
        (errors.NotDurable(2, 1), {"wanted": 2, "got": 1}, ["1 of 2", "stored on the primary"]),
        (errors.UnknownHandler("mail", ["b", "a"]), {"name": "mail"}, ["'mail'", "a, b"]),
        (errors.UnknownHandler("mail", []), {"name": "mail"}, ["known: none"]),
    ],
    ids=lambda part: type(part).__name__ if isinstance(part, Exception) else None,
)
def test_an_error_carries_what_its_caller_needs(error: Exception, carries: dict[str, Any], says: list[str]) -> None:
    # A caller that has to parse the text will break with the next wording.
    assert {name: getattr(error, name) for name in carries} == carries
    for words in says:
        assert words in str(error)


def test_an_unknown_handler_lists_no_more_than_ten() -> None:
    # An application with a thousand handlers must not log all of them with each job.
    text = str(errors.UnknownHandler("x", [f"h{n:04}" for n in range(1_000)]))
    assert "h0009" in text
    assert "h0010" not in text


@pytest.mark.parametrize(
    "error",
    [
        errors.PayloadTooLarge("mail", 2, 1),
        errors.JobFailed("k-1", "x"),
        errors.NotDurable(2, 1),
        errors.UnknownHandler("m", []),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_can_be_made_again(error: Exception) -> None:
    # A process pool takes an exception apart and makes it again, as copy does: a constructor of its own can break it.
    again = copy.copy(error)
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))
