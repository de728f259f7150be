"""Addresses and connections. With `store.py` and `server.py` the only place that imports redis-py.

redis-py is told to do little: no retries of its own (it would re-send behind our back, ten times
by default), RESP2 (replies look the same on every server), one socket timeout that is longer than
any blocking read. Riding through a lost connection is `store.py`'s work, where a call is known.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import redis.asyncio as aioredis
from redis.asyncio.cluster import ClusterNode, PipelineCommand, RedisCluster
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff
from redis.exceptions import AskError, MovedError, TryAgainError

from redisched.errors import ConfigError

Client = Any  # aioredis.Redis | RedisCluster: redis-py types their commands too loosely to help

SOCKET_TIMEOUT_S = 5.0  # a blocking read asks for less
_QUERY_PASSWORD = re.compile(r"(password=)[^&]*")
SCHEMES = "redis://, rediss://, unix://, redis+cluster://, rediss+cluster://, redis+sentinel://, memory://"


def connect(url: str) -> Client:
    """A client for an address; opens no connection yet."""
    scheme = url.partition("://")[0]
    if scheme in ("redis", "rediss", "unix"):
        try:
            return aioredis.Redis.from_url(url, **_options())
        except ValueError:
            # Its text quotes what it took for a port or a path, which may be half of a password.
            raise _malformed(url) from None
    if scheme in ("redis+cluster", "rediss+cluster"):
        hosts, login, _ = _hosts(url)
        nodes = [ClusterNode(host, port) for host, port in hosts]
        options = _options() | login | {"retry": Retry(NoBackoff(), 3)}  # MOVED and ASK are followed as retries
        if scheme == "rediss+cluster":
            options["ssl"] = True
        return RedisCluster(startup_nodes=nodes, **options)
    if scheme == "redis+sentinel":
        hosts, login, path = _hosts(url)
        service, _, database = path.partition("/")
        if not service or not (database or "0").isdigit():
            raise ConfigError("name the service (and database): redis+sentinel://host:26379,host:26379/mymaster/0")
        make: Any = Sentinel  # redis-py leaves it untyped
        sentinel = make(hosts, sentinel_kwargs={"socket_timeout": 1.0}, **_options(), **login)
        return sentinel.master_for(service, db=int(database or 0))
    raise ConfigError(f"{hide_password(url)!r} is not an address redisched knows; it takes {SCHEMES}")


def connect_memory() -> Client:
    """An in-memory server of this object's own, for tests."""
    try:
        from fakeredis import FakeAsyncRedis, FakeServer
    except ImportError as error:
        raise ConfigError("memory:// needs fakeredis: pip install 'redisched[testing]'") from error
    return FakeAsyncRedis(server=FakeServer(), protocol=2)


async def together(client: Client, key: str, commands: list[list[Any]]) -> list[Any]:
    """Commands on one and the same connection, one after the other: what WAIT needs."""
    if not is_cluster(client):
        async with client.pipeline(transaction=False) as pipe:
            for command in commands:
                pipe.execute_command(*command)
            answers: list[Any] = await pipe.execute()
            return answers
    node = client.get_node_from_key(key)
    sent = [PipelineCommand(n, *command) for n, command in enumerate(commands)]
    await node.execute_pipeline(sent)
    for one in sent:
        if isinstance(one.result, MovedError | AskError):
            # The slot moved: learn the new layout; the caller's loop asks again.
            await client.nodes_manager.initialize()
            raise TryAgainError("the slot moved")
        if isinstance(one.result, Exception):
            raise one.result
    return [one.result for one in sent]


def is_cluster(client: Client) -> bool:
    return isinstance(client, RedisCluster)


def hide_password(url: str) -> str:
    """An address fit for logs and errors, also when it is malformed: nothing before its last @ but the user's name."""
    scheme, sep, rest = url.partition("://")
    if not sep:
        scheme, rest = "", url
    login, at, place = rest.rpartition("@")
    if at:
        rest = f"{login.partition(':')[0]}:***@{place}"
    return _QUERY_PASSWORD.sub(r"\1***", f"{scheme}{sep}{rest}")


def _options() -> dict[str, Any]:
    return {
        "protocol": 2,
        "decode_responses": False,
        "retry": Retry(NoBackoff(), 0),
        "socket_timeout": SOCKET_TIMEOUT_S,
        "socket_connect_timeout": SOCKET_TIMEOUT_S,
    }


def _hosts(url: str) -> tuple[list[tuple[str, int]], dict[str, Any], str]:
    """Hosts, login and path of an address with several hosts."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise _malformed(url) from None
    login_text, _, places = parts.netloc.rpartition("@")
    user, _, password = login_text.partition(":")
    hosts: list[tuple[str, int]] = []
    for place in places.split(","):
        host, _, port = place.strip().rpartition(":")
        if not host or not port.isdigit():
            raise _malformed(url)
        hosts.append((host.strip("[]"), int(port)))
    login: dict[str, Any] = {}
    if user:
        login["username"] = unquote(user)
    if password:
        login["password"] = unquote(password)
    for name, values in parse_qs(parts.query).items():
        if name not in ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile"):
            raise ConfigError(f"option {name!r} of the address is not known")
        login[name] = values[0]
    return hosts, login, parts.path.strip("/")


def _malformed(url: str) -> ConfigError:
    return ConfigError(
        f"{hide_password(url)!r} is not an address: "
        "it needs host:port; write / # ? @ : in a password as %2F %23 %3F %40 %3A"
    )
