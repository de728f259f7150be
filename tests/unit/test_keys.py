"""Keys: a tenant's name is data. Tries to reach another tenant's, lane's or shard's keys with one."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redisched.errors import ConfigError
from redisched.keys import (
    DEFAULT_TENANT,
    MAX_TENANT_CHARS,
    PRIORITIES,
    SHARD_KEYS,
    Keys,
    ShardKeys,
    check_namespace,
    decode_tenant,
    encode_tenant,
    lane_of,
    parse_lane,
)

# Names made of what keys, members and records are parted with, beside any other.
SPECIAL = st.text("{}:/#@ %\n\r\t\0*?[]\\hnlHNL.", min_size=1, max_size=12)
NAMES = SPECIAL | st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=MAX_TENANT_CHARS)


def slot_part(key: str) -> str:
    """What Redis Cluster hashes: between the first { and the next }."""
    found = re.search(r"\{([^}]+)\}", key)
    return found[1] if found else key


@given(NAMES)
def test_an_encoded_name_can_end_no_part(name: str) -> None:
    # Each of these characters ends a part of a key, a member, a lease or a header somewhere.
    encoded = encode_tenant(name)
    assert not set(encoded) & set("{}:/#@ \n\r\t\0*?[]\\")
    assert encoded.isascii()
    assert encoded
    assert decode_tenant(encoded) == name


@given(NAMES, NAMES)
def test_distinct_names_stay_distinct(one: str, other: str) -> None:
    # "a%20b" and "a b", "é" composed and decomposed: two tenants, two lanes.
    assert (encode_tenant(one) == encode_tenant(other)) == (one == other)
    lanes = {lane_of(name, priority) for name in (one, other) for priority in PRIORITIES}
    assert len(lanes) == 3 * len({one, other})


@pytest.mark.parametrize(("one", "other"), [("a b", "a%20b"), ("é", "e\u0301"), ("a:h", "a"), ("A", "a"), ("%", "%25")])
def test_names_that_look_alike_stay_distinct(one: str, other: str) -> None:
    # The pairs that a careless encoding joins.
    assert not {lane_of(one, p) for p in PRIORITIES} & {lane_of(other, p) for p in PRIORITIES}


@given(NAMES, st.sampled_from(PRIORITIES))
def test_a_lane_tells_its_tenant_and_priority(name: str, priority: Any) -> None:
    # A tenant called "acme:h" must not become acme's high lane.
    assert parse_lane(lane_of(name, priority)) == (name, priority)


@given(NAMES, st.sampled_from(PRIORITIES), st.integers(0, 5))
def test_every_key_of_a_shard_has_the_shards_tag(name: str, priority: Any, shard: int) -> None:
    # A name with {other:1} in it must not move its lane into another slot: the script would be refused, or worse.
    keys = ShardKeys("rs", shard)
    lane = lane_of(name, priority)
    made = [keys[word] for word in SHARD_KEYS]
    made += [
        keys.lane(lane),
        keys.overflow(lane),
        keys.result("k-1"),
        keys.progress("k-1"),
        keys.rate(7),
        keys.call("c"),
    ]
    assert {slot_part(key) for key in made} == {f"rs:{shard}"}
    assert len(set(made)) == len(made)


@given(NAMES, NAMES, st.sampled_from(PRIORITIES))
def test_no_lanes_key_is_anothers(one: str, other: str, priority: Any) -> None:
    # Prefix and name must not run into each other: lane:x of one is never overflow:x, or lane:x of another.
    keys = ShardKeys("rs", 0)
    if one != other:
        assert keys.lane(lane_of(one, priority)) != keys.lane(lane_of(other, priority))
    assert keys.lane(lane_of(one, priority)) != keys.overflow(lane_of(other, priority))


@pytest.mark.parametrize("name", ["", "x" * (MAX_TENANT_CHARS + 1), "\ud800", "a\udfffb", None, 7, b"acme"])
def test_what_is_no_name_is_refused(name: Any) -> None:
    # An empty name would make the key of a prefix; half a character cannot be stored.
    with pytest.raises(ConfigError, match="tenant"):
        encode_tenant(name)


@pytest.mark.parametrize("namespace", ["", "a:b", "{a}", "a b", "ä", "x" * 65, "rs\n"])
def test_a_namespace_that_could_break_the_tag_is_refused(namespace: str) -> None:
    # The namespace stands inside the hash tag, unencoded.
    with pytest.raises(ConfigError, match="namespace"):
        check_namespace(namespace)
    with pytest.raises(ConfigError, match="namespace"):
        Keys(namespace, 1)


@given(
    st.integers(1, 64), NAMES, st.text("abc012", min_size=1, max_size=14), st.text("abc012", min_size=1, max_size=14)
)
def test_a_tenant_lives_in_one_shard_and_the_default_tenant_in_all(
    shards: int, name: str, one: str, other: str
) -> None:
    # A tenant in two shards would have twice its limits; a default tenant in one would be a bottleneck for all.
    keys = Keys("rs", shards)
    assert 0 <= keys.shard_of(name, one) < shards
    if name != DEFAULT_TENANT:
        assert keys.shard_of(name, one) == keys.shard_of(name, other)
    spread = {keys.shard_of(DEFAULT_TENANT, f"job{n}") for n in range(40 * shards)}
    assert spread == set(range(shards))


def test_where_a_tenant_lives_never_changes() -> None:
    # Another hash in another version would leave every waiting job behind: these are stored facts.
    keys = Keys("rs", 16)
    assert [keys.shard_of(name, "") for name in ("acme", "globex", "ünï", "{rs:7}")] == [14, 10, 10, 15]
    assert keys.shard_of(DEFAULT_TENANT, "0123456789abcd") == 12


def test_namespaces_share_no_key() -> None:
    # Two applications on one server.
    one, other = Keys("rs", 2), Keys("rs2", 2)
    made = [{keys.meta, keys.members, *(s[w] for s in keys.shards for w in SHARD_KEYS)} for keys in (one, other)]
    assert not made[0] & made[1]
    assert (one.meta, one.members) == ("rs:meta", "rs:members")
    assert one.shards[1]["due"] == "{rs:1}:due"


def test_an_unknown_key_word_is_an_error() -> None:
    # A typo in a script's header must not make a key of its own.
    with pytest.raises(KeyError):
        ShardKeys("rs", 0)["deu"]
