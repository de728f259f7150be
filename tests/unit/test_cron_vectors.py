"""413 facts about cron expressions, one test each: tries to break the meaning of an expression."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from redisched.cron import Cron
from redisched.errors import InvalidSchedule

VECTORS = [json.loads(line) for line in (Path(__file__).parent / "cron_vectors.jsonl").open(encoding="utf-8")]


def test_all_vectors_are_here() -> None:
    assert len(VECTORS) == 413
    assert {vector["kind"] for vector in VECTORS} == {"next", "never", "reject"}


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: f"{v['category']}: {v['expr']!a} {v['tz']} {v['start']}")
def test_vector(vector: dict[str, Any]) -> None:
    seconds = vector["category"] == "seconds"
    if vector["kind"] != "next":
        with pytest.raises(InvalidSchedule):
            Cron(vector["expr"], tz=vector["tz"], seconds=seconds)
        return
    cron = Cron(vector["expr"], tz=vector["tz"], seconds=seconds)
    expected = [datetime.fromisoformat(at) for at in vector["expected"]]
    start = datetime.fromisoformat(vector["start"])
    times = cron.preview(start, len(expected))
    assert times == expected
    assert all(at.tzinfo is UTC for at in times)
    assert times[0] > start.astimezone(UTC)
