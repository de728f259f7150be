"""Fixtures of the tests that run `redisched worker` on real servers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from redisched import Scheduler
from redisched.ids import random_name
from tests.support.host import Effects, Host, until
from tests.support.invariants import check_invariants, namespace_keys
from tests.support.servers import ServerProcess, available_kinds


@pytest.fixture(params=available_kinds())
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def namespace() -> str:
    return f"w{random_name(8)}"


@pytest.fixture
def start(
    kind: str, namespace: str, server_of: Callable[[str], ServerProcess], tmp_path: Path
) -> Iterator[Callable[..., Host]]:
    """Starts `redisched worker` with options; all are gone when the test ends."""
    hosts: list[Host] = []

    def begin(*options: str, app: str = "tests.support.app:sched") -> Host:
        hosts.append(Host(server_of(kind).url, namespace, tmp_path / f"host-{len(hosts)}.log", *options, app=app))
        return hosts[-1]

    yield begin
    for host in hosts:
        host.end()


@pytest.fixture
async def sched(kind: str, namespace: str, server_of: Callable[[str], ServerProcess]) -> AsyncIterator[Scheduler]:
    async with Scheduler(server_of(kind).url, namespace=namespace, shards=2) as opened:
        yield opened
        await until(lambda: _settled(opened), "the namespace settles")
        found = await check_invariants(opened.store)
        effects = f"{namespace}-effects"
        for key in [*await namespace_keys(opened.store), effects, f"{effects}:lifespan"]:
            await opened.store.client.delete(key)
        assert not found, "\n".join(["invariants broken:", *found])


async def _settled(sched: Scheduler) -> bool:
    """No host writes any more: two looks at the totals agree."""
    before = (await sched.stats()).totals
    return (await sched.stats()).totals == before


@pytest.fixture
def effects(sched: Scheduler, namespace: str) -> Effects:
    return Effects(sched.store.client, namespace)
