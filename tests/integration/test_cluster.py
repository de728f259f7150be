"""The same code on a cluster of three primaries: scripts, wake-ups and workers on every node."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from redisched import NotDurable, Scheduler, State
from redisched.ids import random_name
from tests.support import app
from tests.support.host import Host, until
from tests.support.invariants import check_invariants
from tests.support.servers import ServerProcess, available_kinds, start_cluster

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", params=available_kinds())
def nodes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ServerProcess]]:
    kind: Any = request.param
    started = start_cluster(kind, tmp_path_factory.mktemp("cluster"))
    yield started
    for node in started:
        node.stop()


def address(nodes: list[ServerProcess]) -> str:
    return f"redis+cluster://{','.join(f'127.0.0.1:{node.port}' for node in nodes)}/"


async def test_jobs_run_on_every_node(nodes: list[ServerProcess], tmp_path: Path) -> None:
    # a script that reaches for another slot's key, a node without the scripts, a bell that nobody hears
    url, namespace = address(nodes), f"c{random_name(8)}"
    async with Scheduler(url, namespace=namespace, shards=8) as sched:
        owners = {sched.store.client.get_node_from_key(keys["due"]).name for keys in sched.store.keys.shards}
        assert len(owners) == 3, "eight shards lie on fewer than three nodes: choose another namespace"
        first = await sched.enqueue_many([app.add(n, n) for n in range(200)])
        delayed = await sched.enqueue_many([app.add(n, 1) for n in range(100)], delay=0.5)
        for node in nodes:
            node.command("SCRIPT", "FLUSH")
        host = Host(url, namespace, tmp_path / "host.log", app="tests.support.bare_app:sched")
        try:
            assert [await job.result(timeout=30) for job in first] == [2 * n for n in range(200)]
            assert [await job.result(timeout=30) for job in delayed] == [n + 1 for n in range(100)]
            one_by_one = [await (await sched.enqueue(app.add(n, n))).result(timeout=30) for n in range(20)]
            assert one_by_one == [2 * n for n in range(20)]
            with pytest.raises(NotDurable):
                await asyncio.wait_for(sched.enqueue(app.add(1, 1), durability="replicated"), 20)
            host.process.terminate()
            await host.wait()
        finally:
            host.end()
        await until(lambda: _empty(sched), "the last job is settled")
        assert await check_invariants(sched.store) == []


async def _empty(sched: Scheduler) -> bool:
    return await sched.run_until_idle() == 0


async def test_cancel_and_views_work_across_nodes(nodes: list[ServerProcess]) -> None:
    # a question that is asked of one node only
    async with Scheduler(address(nodes), namespace=f"c{random_name(8)}", shards=8) as sched:
        jobs = [await sched.enqueue(app.add(n, n), delay=60, tenant=f"t{n}") for n in range(20)]
        assert {await job.status() for job in jobs} == {State.WAITING}
        assert len((await sched.stats()).tenants) == 20
        assert all([await job.cancel() for job in jobs])
        assert (await sched.stats()).total("waiting") == 0
