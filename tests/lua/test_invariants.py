"""The checker itself: a fault that it does not see would be a fault in every test that trusts it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from tests.support.floor import PLAN, Floor, run_of
from tests.support.invariants import check_invariants

pytestmark = pytest.mark.anyio


async def fill(floor: Floor) -> None:
    """A job in each place."""
    await floor.dead("dead")
    await floor.running("running")
    await floor.enqueue("r1", "r2")
    await floor.enqueue("waiting", when="+5")
    await floor.client.zadd(floor.keys.overflow("acme"), {"acme/over": 1})
    await floor.client.hset(floor.keys["jobs"], "over", await floor.record("r1"))
    await floor.client.hset(floor.keys["ringed"], "acme", "nN 0")
    await floor.plan(PLAN, "acme/paused")
    await floor.plan("acme/paused", seen=1, mode="p")
    await floor.call("backfill", floor.now, 0, PLAN, 1, 2, 2)
    await floor.store.stale(0, [f"{PLAN}@1", run_of(1)])
    await floor.client.ltrim(floor.keys["alarm"], 0, 0)


Wreck = Callable[[Floor], Awaitable[object]]
FAULTS: dict[str, Wreck] = {
    "job waiting is in no place": lambda f: f.client.zrem(f.keys["due"], "acme/waiting"),
    "job r1 is in due and lane:acme": lambda f: f.client.zadd(f.keys["due"], {"acme/r1": 1}),
    "job running is in due and leases": lambda f: f.client.zadd(f.keys["due"], {"acme/running": 1}),
    "due holds waiting, which has no record": lambda f: f.client.hdel(f.keys["jobs"], "waiting"),
    "lane:acme holds r1, which has no record": lambda f: f.client.hdel(f.keys["jobs"], "r1"),
    "overflow:acme holds over, which has no record": lambda f: f.client.hdel(f.keys["jobs"], "over"),
    "leases holds running, which has no record": lambda f: f.client.hdel(f.keys["jobs"], "running"),
    "dead holds dead, which has no record": lambda f: f.client.hdel(f.keys["jobs"], "dead"),
    "overflow:other holds acme/x": lambda f: f.client.zadd(f.keys.overflow("other"), {"acme/x": 1}),
    "whose record names lane 'other'": lambda f: f.client.hset(f.keys["jobs"], "r1", "q other 0 5\n"),
    "job r1: no record": lambda f: f.client.hset(f.keys["jobs"], "r1", "q acme 0 5 0 9\nshort"),
    "job dead has state q, but is in dead": lambda f: f.client.hset(f.keys["jobs"], "dead", "q acme 0 5\n"),
    "job r1 has state d, but is not in dead": lambda f: f.client.hset(f.keys["jobs"], "r1", "d acme 0 5 1-1 0\n"),
    "job dead is marked b'1-1'": lambda f: f.client.hset(f.keys["jobs"], "dead", "d acme 0 5 1-1 0\n"),
    "tally 'w acme' is 2, counted 1": lambda f: f.client.hset(f.keys["tally"], "w acme", 2),
    "tally 'r acme' is None, counted 1": lambda f: f.client.hdel(f.keys["tally"], "r acme"),
    "tally 'd x' is 0, counted 0": lambda f: f.client.hset(f.keys["tally"], "d x", 0),
    "acme is in the ring 2 times": lambda f: f.client.rpush(f.keys["ring"], "acme"),
    "acme is only in ringed": lambda f: f.client.delete(f.keys["ring"]),
    "x is only in the ring": lambda f: f.client.rpush(f.keys["ring"], "x"),
    "ringed acme is 'nNn 0'": lambda f: f.client.hset(f.keys["ringed"], "acme", "nNn 0"),
    "lane acme holds work, but is not marked n": lambda f: f.client.hset(f.keys["ringed"], "acme", "N 0"),
    "lane acme holds work, but is not marked N": lambda f: f.client.hset(f.keys["ringed"], "acme", "n 0"),
    "lane:acme is empty and was not deleted": lambda f: f.client.xtrim(f.keys.lane("acme"), maxlen=0),
    "leases holds 'x'": lambda f: f.client.zadd(f.keys["leases"], {"x": 1}),
    "the last one given is 0": lambda f: f.client.delete(f.keys["fence"]),
    "two leases have the same fence": lambda f: f.client.zadd(f.keys["leases"], {"a#1@w": 1, "b#1@w": 1}),
    "alarm holds 17 hints": lambda f: f.client.rpush(f.keys["alarm"], *range(16)),
    "result:x has no TTL": lambda f: f.client.set(f.keys.result("x"), "1"),
    "call:x has no TTL": lambda f: f.client.set(f.keys.call("x"), "1"),
    "jobs has a TTL": lambda f: f.client.expire(f.keys["jobs"], 100),
    "progress:x is a hash, not a string": lambda f: f.client.hset(f.keys.progress("x"), "a", 1),
    "spare: no key of redisched": lambda f: f.client.set(f.keys.tag + "spare", "1"),
    "lane:: no key of redisched": lambda f: f.client.set(f.keys.lane(""), "1"),
    "schedule acme/nightly is not in plan": lambda f: f.client.hdel(f.keys["plan"], PLAN),
    "schedule acme/paused is not in planned": lambda f: f.client.hdel(f.keys["planned"], "acme/paused"),
    "schedule acme/nightly is not in roster": lambda f: f.client.zrem(f.keys["roster"], PLAN),
    "schedule acme/x is not in plan and planned": lambda f: f.client.zadd(f.keys["roster"], {"acme/x": 0}),
    "schedule acme/nightly is enabled, but not in plans": lambda f: f.client.zrem(f.keys["plans"], PLAN),
    "schedule acme/nightly! is enabled, but not in plans": lambda f: f.client.zrem(f.keys["plans"], PLAN + "!"),
    "plans holds acme/paused, which is not enabled": lambda f: f.client.zadd(f.keys["plans"], {"acme/paused": 1}),
    "plans holds acme/x!, which is not enabled": lambda f: f.client.zadd(f.keys["plans"], {"acme/x!": 1}),
    "backfill acme/nightly! has no schedule": lambda f: f.client.hdel(f.keys["planned"], PLAN),
    "schedule acme/nightly: no state": lambda f: f.client.hset(f.keys["planned"], PLAN, "1 2 q 0 0 0 0 1 1 -"),
    "schedule acme/nightly!: no state": lambda f: f.client.hset(f.keys["planned"], PLAN + "!", "1 2 - 0 0 0 0 1 1 -"),
    "schedule acme/nightly is looked at inf": lambda f: f.client.zadd(f.keys["plans"], {PLAN: "inf"}),
    "pace acme is 'inf'": lambda f: f.client.hset(f.keys["pace"], "acme", "inf"),
    "history:acme/x has no schedule": lambda f: f.client.rename(f.keys.history(PLAN), f.keys.history("acme/x")),
    "history:acme/nightly has no TTL": lambda f: f.client.persist(f.keys.history(PLAN)),
    "history:acme/nightly holds b'?'": lambda f: f.client.xadd(f.keys.history(PLAN), {"o": "1", "r": "?"}),
    ":9}:due: no key of redisched": lambda f: f.client.set(f"{{{f.store.settings.namespace}:9}}:due", "1"),
    ":notes: no key of redisched": lambda f: f.client.set(f"{f.store.settings.namespace}:notes", "1"),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault_is_found(floor: Floor, fault: str) -> None:
    # Tries to slip one fault of each kind past the checker.
    await fill(floor)
    assert await check_invariants(floor.store) == []
    await FAULTS[fault](floor)
    found = await check_invariants(floor.store)
    assert [line for line in found if fault in line], found
    floor.expect(*found)
