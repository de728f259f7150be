"""Fixtures of all suites: servers that live for the session, and for each test a namespace of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from redisched.ids import random_name
from redisched.settings import StoreSettings
from tests.support.floor import Floor
from tests.support.servers import ServerProcess, available_kinds, start_server

KINDS = ["fake", *available_kinds()]


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return ("asyncio", {"use_uvloop": True})


@pytest.fixture(scope="session")
def server_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], ServerProcess]]:
    """The session's server of a kind, started when it is first asked for."""
    started: dict[str, ServerProcess] = {}

    def get(kind: Any) -> ServerProcess:
        if kind not in started:
            started[kind] = start_server(kind, tmp_path_factory.mktemp(kind))
        return started[kind]

    yield get
    for server in started.values():
        server.stop()


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Every server that scripts must run on. A test for real servers only parametrises it anew."""
    return str(request.param)


@pytest.fixture
def lane_bound() -> int:
    """A test for short lanes parametrises it anew."""
    return 2_000


@pytest.fixture
async def floor(kind: str, lane_bound: int, server_of: Callable[[str], ServerProcess]) -> AsyncIterator[Floor]:
    """A shard of a fresh namespace. The invariants are checked, and its keys removed, when the test ends."""
    url = "memory://" if kind == "fake" else server_of(kind).url
    settings = StoreSettings(url=url, namespace=f"t{random_name(8)}", shards=2, lane_bound=lane_bound)
    floor = Floor(settings, kind)
    await floor.open()
    yield floor
    await floor.close()
