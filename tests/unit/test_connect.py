"""Addresses: tries to get a password shown, and to get anything but ConfigError for a wrong one."""

from __future__ import annotations

import string
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.asyncio.cluster import RedisCluster
from redis.asyncio.sentinel import SentinelConnectionPool

from redisched.errors import ConfigError
from redisched.store.connect import SCHEMES, SOCKET_TIMEOUT_S, connect, hide_password, is_cluster

SECRET = "s3cr3t"
# Letters that no address below holds by itself, and what a careless person leaves unescaped.
PASSWORDS = st.text("XYZQ", min_size=4, max_size=12)
SEPARATORS = st.sampled_from(["", "/", "#", "?", "@", ":", "%", "//", "[", "&x="])


def said(url: str) -> str:
    """All that connecting to a wrong address shows to anybody: the error and what it came from."""
    with pytest.raises(ConfigError) as caught:
        connect(url)
    return f"{caught.value} {caught.value.__cause__!r}"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"redis://:{SECRET}@host:6379/0", "redis://:***@host:6379/0"),
        (f"redis://user:{SECRET}@host:6379/0", "redis://user:***@host:6379/0"),
        (f"rediss://user:{SECRET}@host", "rediss://user:***@host"),
        (f"redis+cluster://user:{SECRET}@a:1,b:2", "redis+cluster://user:***@a:1,b:2"),
        (f"redis+sentinel://:{SECRET}@a:1/mymaster", "redis+sentinel://:***@a:1/mymaster"),
        (f"unix://user:{SECRET}@/run/redis.sock?db=1", "unix://user:***@/run/redis.sock?db=1"),
        (f"redis://:{SECRET}@{SECRET}@host", "redis://:***@host"),
        ("redis://host:6379/0", "redis://host:6379/0"),
        ("memory://", "memory://"),
    ],
)
def test_a_shown_address_names_the_place_and_not_the_password(url: str, shown: str) -> None:
    # Logs and errors are read by more people than the password was given to.
    assert hide_password(url) == shown


@pytest.mark.parametrize(
    "url",
    [
        f"redis://host:6379/0?password={SECRET}",
        f"redis://host:6379/0?username=u&password={SECRET}&db=1",
        f"unix:///run/redis.sock?password={SECRET}",
        f"user:{SECRET}@host:6379",
        f"redis:/user:{SECRET}@host:6379",
    ],
)
def test_no_password_is_shown_wherever_it_stands(url: str) -> None:
    # redis-py takes a password from the query as well; and a forgotten scheme is the commonest mistake of all.
    assert SECRET not in hide_password(url)


@given(password=PASSWORDS, rest=PASSWORDS, between=SEPARATORS)
@pytest.mark.parametrize("scheme", ["redis", "rediss", "redis+cluster", "redis+sentinel", "nosuch", ""])
def test_no_part_of_a_password_is_in_an_error(scheme: str, password: str, rest: str, between: str) -> None:
    # An unescaped / or # in a password makes its first half the host, which an error likes to quote.
    url = (
        f"{scheme}://user:{password}{between}{rest}@host:nan/0"
        if scheme
        else f"user:{password}{between}{rest}@host:nan"
    )
    text = said(url)
    assert password not in text
    assert rest not in text


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:6379",
        "http://host",
        "redis://host:port",
        "redis+cluster://",
        "redis+cluster://host",
        "redis+cluster://host:1,",
        "redis+cluster://[::1:7000",
        "redis+cluster://host:1?color=red",
        "redis+sentinel://host:26379",
        "redis+sentinel://host:26379/mymaster/x",
        "memory",
    ],
)
def test_a_wrong_address_is_a_config_error(url: str) -> None:
    # Any other error reaches a user of the CLI as a traceback.
    assert said(url)


def test_an_unknown_scheme_is_answered_with_the_known_ones() -> None:
    # Otherwise nobody finds redis+cluster://.
    assert SCHEMES in said("tcp://host:6379")


def kwargs_of(client: Any) -> dict[str, Any]:
    found: dict[str, Any] = client.connection_pool.connection_kwargs
    return found


@given(
    user=st.text(string.printable, min_size=1, max_size=10),
    password=st.text(string.printable, min_size=1, max_size=10),
    scheme=st.sampled_from(["redis+cluster", "redis+sentinel"]),
)
def test_an_escaped_login_arrives_as_it_was(user: str, password: str, scheme: str) -> None:
    # %2F in a password is a slash, not three characters.
    url = f"{scheme}://{quote(user, safe='')}:{quote(password, safe='')}@a:7000,b:7001/mymaster"
    client = connect(url)
    given = client.connection_kwargs if is_cluster(client) else kwargs_of(client)
    assert (given["username"], given["password"]) == (user, password)


@pytest.mark.parametrize(
    ("url", "host", "port", "db"),
    [
        ("redis://host:6380/3", "host", 6380, 3),
        ("redis://[::1]:6380", "::1", 6380, None),
        ("rediss://user:pw@host:6380/1", "host", 6380, 1),
    ],
)
def test_one_server(url: str, host: str, port: int, db: int | None) -> None:
    # Opens no connection: a wrong host shows when it is used.
    found = kwargs_of(connect(url))
    assert (found["host"], found["port"], found.get("db")) == (host, port, db)


@pytest.mark.parametrize("url", ["redis://host", "unix:///run/redis.sock", "redis+sentinel://h:1/m"])
def test_redis_py_retries_nothing_and_never_waits_for_ever(url: str) -> None:
    # redis-py re-sends ten times by default, behind the back of whoever counts calls.
    found = kwargs_of(connect(url))
    assert found["retry"]._retries == 0
    assert found["socket_timeout"] == found["socket_connect_timeout"] == SOCKET_TIMEOUT_S
    assert found["protocol"] == 2
    assert found["decode_responses"] is False


def test_a_cluster_gets_all_its_nodes() -> None:
    # One node that is down must not hide the others.
    client = connect("rediss+cluster://a:7000,b:7001,[::1]:7002")
    assert isinstance(client, RedisCluster)
    assert is_cluster(client)
    assert set(client.nodes_manager.startup_nodes) == {"a:7000", "b:7001", "::1:7002"}
    assert not is_cluster(connect("redis://host"))


def test_a_sentinel_gets_its_service_and_database() -> None:
    # The database stands behind the service's name.
    client = connect("redis+sentinel://a:26379,b:26380/mymaster/2")
    pool = client.connection_pool
    assert isinstance(pool, SentinelConnectionPool)
    assert pool.service_name == "mymaster"
    assert pool.connection_kwargs["db"] == 2
    assert [kwargs_of(s)["port"] for s in pool.sentinel_manager.sentinels] == [26379, 26380]
