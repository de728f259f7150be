"""What every script must stand: a fresh server, a flushed cache, one cluster slot, a full server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import ResponseError

from redisched.errors import StoreFull
from redisched.settings import StoreSettings
from redisched.store.scripts import load_scripts
from tests.support.floor import LEASE_MS, LEASE_VERBS, Floor, parcel
from tests.support.servers import available_kinds, start_cluster, start_server
from tests.support.walk import walk

pytestmark = pytest.mark.anyio
real_servers = pytest.mark.parametrize("kind", available_kinds())


@asynccontextmanager
async def floor_at(url: str, kind: str) -> AsyncIterator[Floor]:
    floor = Floor(StoreSettings(url=url, namespace="alone", shards=2), kind)
    await floor.open()
    try:
        yield floor
    except BaseException:
        await floor.store.close()
        raise
    await floor.close()


async def test_the_walk_leaves_no_script_out(floor: Floor) -> None:
    # Tries to add a script that the tests below do not know: give it a step in tests/support/walk.py.
    assert await walk(floor) == set(floor.store.scripts)


async def test_a_flushed_script_cache_is_survived(floor: Floor) -> None:
    # Tries to stop the store by SCRIPT FLUSH before every single call.
    async def flush() -> None:
        await floor.client.script_flush()

    await walk(floor, flush)


@real_servers
async def test_a_fresh_server_learns_the_scripts(kind: Any, tmp_path: Path) -> None:
    # Tries to run on a server that has never seen a script, alone and after it lost all in a restart.
    server = start_server(kind, tmp_path, appendonly=False)
    try:
        for _ in range(2):
            async with floor_at(server.url, kind) as floor:
                await walk(floor)
                assert await floor.client.dbsize() > 0
            server.restart()
    finally:
        server.stop()


@real_servers
async def test_every_script_stays_in_one_slot(kind: Any, tmp_path: Path) -> None:
    # Tries to touch a key of another slot that a script made up: a cluster refuses what is on another node.
    nodes = start_cluster(kind, tmp_path)
    try:
        async with floor_at(f"redis+cluster://127.0.0.1:{nodes[0].port}", kind) as floor:
            with pytest.raises(ResponseError, match="non local key"):
                await floor.client.eval("for n = 1, 50 do redis.call('GET', n) end", 1, "one")
            for floor.shard in (0, 1):
                await walk(floor)
    finally:
        for node in nodes:
            node.stop()


@pytest.mark.parametrize("name", sorted(load_scripts()))
async def test_all_keys_of_a_script_carry_the_shards_tag(floor: Floor, name: str) -> None:
    # Tries to send a key without the tag: one script, two slots.
    script = floor.store.scripts[name]
    for keys in floor.store.keys.shards:
        command = floor.store._command(script, keys, (), floor.caller)
        sent = command[3 : 3 + command[2]]
        assert len(sent) == len(script.keys) == len(set(sent))
        assert all(key.startswith(keys.tag) and key.count("{") == key.count("}") == 1 for key in sent)


async def test_without_a_given_time_the_servers_clock_decides(floor: Floor) -> None:
    # Tries to compare with a caller's clock, or with none: 0 stands for the server's own time.
    async def server_ms() -> int:
        seconds, micros = await floor.client.time()
        return int(seconds) * 1000 + int(micros) // 1000

    early = await server_ms()
    assert await floor.call("enqueue", 0, 0, 2_000, *parcel("later", when="+60000"), *parcel("now")) == [2]
    late = await server_ms()
    ((_, at),) = await floor.client.zrange(floor.keys["due"], 0, -1, withscores=True)
    assert early + 60_000 <= at <= late + 60_000
    moved, next_ms = await floor.call("promote", 0, 10, 2_000)
    assert moved == 0
    assert 0 < next_ms <= 60_000
    _, fence, *pairs = await floor.call("claim", 0, 10, 50_000, "w1")
    assert pairs[0] == b"now"
    assert early * 1000 <= fence <= await server_ms() * 1000
    ended, _, next_ms = await floor.call("recover", 0, 10, 0, 0)
    assert ended == 0
    assert 0 < next_ms <= 50_000


async def test_shards_do_not_see_each_other(floor: Floor) -> None:
    # Tries to reach another shard's jobs: the same ids and tenants live in both.
    await floor.enqueue("a")
    floor.shard = 1
    assert await floor.where("a") == "gone"
    assert await floor.enqueue("a") == [1]
    assert len(await floor.claim()) == 1
    floor.shard = 0
    assert await floor.where("a") == "ready"


@asynccontextmanager
async def full(floor: Floor) -> AsyncIterator[None]:
    """The server is over its memory limit."""
    await floor.client.config_set("maxmemory-policy", "noeviction")
    await floor.client.config_set("maxmemory", 1)
    try:
        yield
    finally:
        await floor.client.config_set("maxmemory", 0)


@real_servers
@pytest.mark.parametrize("flushed", [False, True])
async def test_a_full_server_refuses_new_work_and_stores_nothing(floor: Floor, flushed: bool) -> None:
    # Tries to store a job by half on a server that is over its limit, with the script cached and not.
    await floor.enqueue("a", "later", "dead")
    before = await floor.picture()
    if flushed:
        await floor.client.script_flush()
    async with full(floor):
        for when in ("+0", "+500"):
            with pytest.raises(StoreFull):
                await floor.enqueue("new", when=when, seq=1)
        assert await floor.picture() == before
    assert await floor.enqueue("new", seq=1) == [1], "the same call goes through once there is room"
    assert await floor.claim_ids() == ["a", "later", "dead", "new"]


@real_servers
@pytest.mark.parametrize("flushed", [False, True])
async def test_a_full_server_is_drained(floor: Floor, flushed: bool) -> None:
    # Tries to lock a full server up: what ends, moves or takes back work must get through, and lose nothing.
    await floor.enqueue("waits", when="+1")
    await floor.enqueue(*LEASE_VERBS, "lost", "cancelled")
    jobs = {job.id: job for job in await floor.claim()}
    await floor.enqueue("ready")
    floor.clock.advance(0.5)
    if flushed:
        await floor.client.script_flush()
    async with full(floor):
        assert await floor.promote() == (1, 0)
        (first, second) = await floor.claim(2, worker="w2")
        assert [first.id, second.id] == ["ready", "waits"]
        members = [job.member for job in (*jobs.values(), first)]
        assert await floor.store.renew(0, LEASE_MS, members) == []
        for seq, verb in enumerate(LEASE_VERBS, 1):
            assert await floor.end(verb, [jobs[verb]], seq=2 * seq) == [1]
            assert await floor.end(verb, [jobs["complete"]], seq=2 * seq + 1) == [0, 0], "it has gone"
        assert await floor.store.cancel(0, "cancelled", jobs["cancelled"].member, 1_000) == "cancelled"
        floor.clock.advance(LEASE_MS / 1000)
        assert await floor.store.recover(0, 10) == (3, 0, -1)
        with pytest.raises(StoreFull):
            await floor.enqueue("new")
    places = {i: await floor.where(i) for i in (*LEASE_VERBS, "lost", "ready", "waits")}
    assert places == {
        "complete": "gone",
        "retry": "waiting",
        "bury": "dead",
        "release": "waiting",
        "lost": "waiting",
        "ready": "waiting",
        "waits": "waiting",
    }
    assert await floor.enqueue("new") == [1]
    await floor.promote()
    assert sorted(await floor.claim_ids()) == ["lost", "new", "ready", "release", "retry", "waits"]
