"""What is said of a server: persistence, eviction, and what a managed one does not let us see."""

from __future__ import annotations

from typing import Any

import pytest

from redisched import ConfigError
from redisched.doctor import examine
from redisched.settings import StoreSettings
from redisched.store import Store
from redisched.store.server import check_server, examine_server
from tests.support.servers import start_server

pytestmark = pytest.mark.anyio


async def store_at(url: str, **settings: Any) -> Store:
    store = Store(StoreSettings(url, **settings))
    await store.open()
    return store


async def test_an_evicting_server_is_refused_unless_allowed(tmp_path: Any) -> None:
    config = {"maxmemory": "100mb", "maxmemory-policy": "allkeys-lru"}
    server = start_server("valkey", tmp_path / "evicts", config=config)
    store = await store_at(server.url)
    with pytest.raises(ConfigError, match="maxmemory-policy noeviction"):
        await check_server(store)
    assert (await examine(store)).counts == {"eviction": 1}
    await store.close()
    allowed = await store_at(server.url, allow_eviction=True)
    assert (await check_server(allowed)).evicts
    await allowed.close()
    server.stop()


async def test_what_the_server_promises_follows_its_configuration(tmp_path: Any) -> None:
    server = start_server("valkey", tmp_path / "promise", appendonly=True)
    store = await store_at(server.url)
    report = await check_server(store)
    assert (report.kind, report.appendonly, report.fsync) == ("valkey", True, "everysec")
    assert "up to 1 s" in report.promise
    server.command("CONFIG", "SET", "appendfsync", "always")
    assert "a power loss loses nothing" in (await check_server(store)).promise
    server.command("CONFIG", "SET", "appendonly", "no")
    assert "set appendonly yes" in (await check_server(store)).promise
    assert abs(report.clock_ahead_ms) < 1_000
    await store.close()
    server.stop()


async def test_a_server_that_forbids_config_and_info_is_said_to_be_unknown(tmp_path: Any) -> None:
    server = start_server("valkey", tmp_path / "managed", appendonly=True)
    rules = ("on", ">x", "~*", "&*", "+@all", "-config")
    assert server.command("ACL", "SETUSER", "bob", *rules) == "+OK"
    store = await store_at(server.url.replace("redis://", "redis://bob:x@"))
    seen = await examine(store)
    assert seen.server.appendonly
    assert not seen.server.config_allowed
    assert any("CONFIG is forbidden" in line for line in seen.advice)
    assert server.command("ACL", "SETUSER", "bob", "-info") == "+OK"
    assert "unknown" in (await check_server(store)).promise
    await store.close()
    server.stop()


async def test_memory_says_so() -> None:
    store = await store_at("memory://")
    assert (await examine_server(store)).kind == "in-memory"
    await store.close()
