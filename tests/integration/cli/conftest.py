"""Commands run in the test's own process: what they do to the log is undone."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    log = logging.getLogger("redisched")
    before = log.level
    yield
    log.setLevel(before)
