"""One shard of a store, held the way the Lua tests need it: short verbs, places, and a picture of all keys.

Used by `tests/lua`. Calls go through `Store.call`, so keys and arguments are bound as they are in production,
and answers come back as the script gave them.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from redisched.clock import MovableClock
from redisched.codec import Body, decode_runs, encode, encode_record, encode_run, raw
from redisched.errors import StoreError
from redisched.keys import ShardKeys, encode_tenant, lane_of
from redisched.model import Claimed, Outcome
from redisched.plan import Standing, Step
from redisched.settings import StoreSettings
from redisched.store import Caller, Store
from tests.support.invariants import check_invariants, namespace_keys

START = datetime(2027, 1, 1, tzinfo=UTC)
LEASE_MS = 10_000
short_lanes = pytest.mark.parametrize("lane_bound", [3])
PLAN = "acme/nightly"
MINUTE_MS = 60_000
HISTORY_MS = 86_400_000
PACE = (2, 3_600)  # a catch-up makes one a second
MOVED, MADE, PASSED, SKIPPED, WAITS, TURN = range(6)  # what `fire` answers
ENDS = ("complete", "bury", "cancel", "recover", "release")
LEASE_VERBS = ("complete", "retry", "bury", "release")  # numbered, and end leases


def record_of(lane: str, max_attempts: int = 5) -> bytes:
    return encode_record(lane, max_attempts, Body("greet", 0, raw(encode({"to": "you\n\0"}))))


def run_of(attempt: int, outcome: Outcome = Outcome.FAILED, error: str = "no luck") -> bytes:
    return encode_run(attempt, "w1", 1_000, 2_000, outcome, error)


def parcel(
    job_id: str, tenant: str = "acme", priority: str = "normal", when: str = "+0", max_attempts: int = 5
) -> list[Any]:
    lane = lane_of(tenant, priority)
    return [job_id, lane, when, record_of(lane, max_attempts)]


def header(record: bytes) -> list[str]:
    """state, lane, attempts, max, mark, size"""
    return record.partition(b"\n")[0].decode().split(" ")


class Floor:
    def __init__(self, settings: StoreSettings, kind: str) -> None:
        self.kind = kind
        self.clock = MovableClock(START)
        self.store = Store(settings, clock=self.clock)
        self.shard = 0
        self._expected: list[str] = []

    async def open(self) -> None:
        await self.store.open()
        self.caller = self.store.caller()

    async def close(self) -> None:
        """Fails the test when it left something behind that it did not announce."""
        try:
            found = await check_invariants(self.store)
            if keys := await namespace_keys(self.store):
                for key in keys:
                    await self.store.client.delete(key)
        finally:
            await self.store.close()
        unexpected = [line for line in found if not any(text in line for text in self._expected)]
        missing = [text for text in self._expected if not any(text in line for line in found)]
        assert not unexpected, "\n".join(["invariants broken:", *unexpected])
        assert not missing, f"announced but not found: {missing}"

    def expect(self, *violations: str) -> None:
        """Parts of violations that this test makes by hand, and that no script can mend."""
        self._expected += violations

    # -- short names

    @property
    def now(self) -> int:
        return self.clock.now_ms()

    @property
    def keys(self) -> ShardKeys:
        return self.store.keys.shards[self.shard]

    @property
    def client(self) -> Any:
        return self.store.client

    def new_caller(self) -> Caller:
        return self.store.caller()

    async def call(self, name: str, *args: Any, caller: Caller | None = None) -> list[Any]:
        return await self.store.call(name, self.shard, *args, caller=caller or self.caller)

    # -- verbs

    async def enqueue(self, *ids: str, caller: Caller | None = None, seq: int = 0, **parts: Any) -> list[int]:
        fresh = [word for job_id in ids for word in parcel(job_id, **parts)]
        return await self.store.enqueue(self.shard, seq, caller or self.caller, fresh)

    async def promote(self, limit: int = 100) -> tuple[int, int]:
        return await self.store.promote(self.shard, limit)

    async def claim(self, limit: int = 100, worker: str = "w1", lease_ms: int = LEASE_MS) -> list[Claimed]:
        _, jobs = await self.store.claim(self.shard, limit, lease_ms, worker)
        return jobs

    async def claim_ids(self, limit: int = 100) -> list[str]:
        return [job.id for job in await self.claim(limit)]

    async def running(self, *ids: str, **parts: Any) -> list[Claimed]:
        """Enqueues and claims; the store was empty of ready work."""
        await self.enqueue(*ids, **parts)
        jobs = await self.claim(len(ids))
        assert [job.id for job in jobs] == list(ids)
        return jobs

    async def dead(self, *ids: str, **parts: Any) -> list[Claimed]:
        jobs = await self.running(*ids, **parts)
        assert await self.end("bury", jobs) == [len(ids)]
        return jobs

    async def end(self, verb: str, jobs: list[Claimed], seq: int = 0, caller: Caller | None = None) -> list[int]:
        """Ends leases by one of LEASE_VERBS, with ordinary arguments."""
        args = self.end_args(verb, jobs, seq)
        if verb == "complete":
            done = run_of(1, Outcome.DONE, "")
            args += [word for n, job in enumerate(jobs) if "@" in job.id for word in (n, done, 0)]
        return await self.call(verb, *args, caller=caller)

    def end_args(self, verb: str, jobs: list[Claimed], seq: int, results: int = 0) -> list[Any]:
        if verb == "complete":
            tenants = [header(job.record)[1].partition(":")[0] for job in jobs]
            return [self.now, seq, len(jobs), results, *(j.member for j in jobs), *(j.id for j in jobs), *tenants]
        own: dict[str, tuple[Any, ...]] = {
            "retry": (1, 5, 1_000, run_of(1)),
            "bury": ("no luck", run_of(1)),
            "release": ("unstarted", 0),
        }
        first = {"retry": [self.now, seq], "bury": [self.now, seq], "release": [self.now, seq, 100]}[verb]
        return first + [word for job in jobs for word in (job.member, job.id, *own[verb])]

    # -- schedules

    def plan_args(self, *names: str, **parts: Any) -> list[Any]:
        """For `schedule`: a first occurrence that is due now, unless `parts` say otherwise."""
        p = {"seen": 0, "mode": "-", "cursor": self.now, "look": 0, "body": b"\xffbody"} | {"quota": 1_000, "others": 0}
        p |= {"kept": 100, "keep_ms": HISTORY_MS} | parts
        args = [self.now, 0, p["quota"], p["others"], p["kept"], p["keep_ms"]]
        row = [p[word] for word in ("seen", "body", "mode", "cursor", "look")]
        return args + [word for name in names or (PLAN,) for word in (name, *row)]

    async def plan(self, *names: str, **parts: Any) -> list[int]:
        return await self.call("schedule", *self.plan_args(*names, **parts))

    async def step(self, name: str = PLAN, kind: str = "f", max_attempts: int = 5, **parts: Any) -> list[Any]:
        """For `fire`: makes the occurrence at the cursor, the next is a minute later, unless `parts` say otherwise."""
        raw_state = await self.client.hget(self.keys["planned"], name)
        s = Standing.parse(raw_state) if raw_state else Standing()
        nominal = parts.get("occurrence_ms", s.cursor_ms)
        following = parts.get("next_ms", s.cursor_ms + MINUTE_MS)
        at_ms = nominal if isinstance(nominal, int) else self.now
        look_ms = max(0, following)
        step = Step(kind, s.version, s.cursor_ms, nominal, at_ms, following, look_ms, 0, 0, 0, "s", 0)
        lane = name.partition("/")[0]
        return [name, lane, record_of(lane, max_attempts), step._replace(**parts).words]

    async def fire(self, name: str = PLAN, kind: str = "f", pace: tuple[int, int] = PACE, **parts: Any) -> int:
        return (await self.fire_steps(await self.step(name, kind, **parts), pace=pace))[0]

    async def fire_steps(self, *steps: list[Any], pace: tuple[int, int] = PACE) -> list[int]:
        return await self.store.fire(self.shard, self.caller, pace, [word for step in steps for word in step])

    async def run_occurrence(self, name: str = PLAN, **parts: Any) -> Claimed:
        """Makes an occurrence and claims it; the store was empty of ready work."""
        assert await self.fire(name, **parts) == MADE
        (job,) = await self.claim()
        return job

    async def finish(self, how: str, job: Claimed) -> None:
        """Ends a running job for good by one of ENDS; it had one attempt."""
        if how == "cancel":
            assert await self.store.cancel(self.shard, job.id, job.member, MINUTE_MS) == "cancelled"
        elif how == "recover":
            self.clock.advance(LEASE_MS / 1000)
            assert await self.store.recover(self.shard, 10) == (1, 1, -1)
        elif how == "release":
            assert await self.store.release(self.shard, self.caller, 9, [job.member, job.id, "lost", 0]) == []
        else:
            assert await self.end(how, [job]) == [1]

    async def standing(self, name: str = PLAN) -> Standing:
        return Standing.parse(await self.client.hget(self.keys["planned"], name))

    async def look(self, name: str = PLAN) -> int | None:
        """When it is looked at, in ms from now."""
        at = await self.client.zscore(self.keys["plans"], name)
        return None if at is None else round(at) - self.now

    async def history(self, name: str = PLAN) -> list[tuple[str, Outcome]]:
        """Occurrence and outcome of its runs, the oldest first."""
        entries = await self.client.xrange(self.keys.history(name))
        return [(f[b"o"].decode(), run.outcome) for _, f in entries for run in decode_runs(f[b"r"])]

    # -- by hand, past the scripts

    async def put_ready(self, job_id: str, entry: str, tenant: str = "acme", priority: str = "normal") -> None:
        """A ready job whose lane entry has a chosen id: `XADD *` takes the server's clock."""
        lane, part = lane_of(tenant, priority), encode_tenant(tenant)
        await self.client.hset(self.keys["jobs"], job_id, record_of(lane))
        await self.client.xadd(self.keys.lane(lane), {"i": job_id}, id=entry)
        letter = priority[0]
        state = (await self.client.hget(self.keys["ringed"], part) or b"").decode().partition(" ")[0]
        if not state:
            await self.client.rpush(self.keys["ring"], part)
        if letter not in state:
            await self.client.hset(self.keys["ringed"], part, f"{state}{letter} 0")

    async def set_record(self, job_id: str, record: bytes | str | None) -> None:
        if record is None:
            await self.client.hdel(self.keys["jobs"], job_id)
        else:
            await self.client.hset(self.keys["jobs"], job_id, record)

    # -- looking

    async def record(self, job_id: str) -> bytes:
        found: bytes = await self.client.hget(self.keys["jobs"], job_id)
        return found

    async def header(self, job_id: str) -> list[str]:
        return header(await self.record(job_id))

    async def where(self, job_id: str) -> str:
        return (await self.store.locate(self.shard, job_id))[0]

    async def due(self) -> dict[str, int]:
        """id -> run time in ms from now, in order."""
        pairs = await self.client.zrange(self.keys["due"], 0, -1, withscores=True)
        return {member.decode().partition("/")[2]: int(at) - self.now for member, at in pairs}

    async def totals(self) -> dict[str, int]:
        """What the shard counted; a zero says nothing."""
        found = await self.client.hgetall(self.keys["totals"])
        return {name.decode(): int(count) for name, count in found.items() if int(count)}

    async def picture(self) -> dict[str, Any]:
        """Every key of the namespace with its value, to see that nothing changed."""
        picture: dict[str, Any] = {}
        for key in await namespace_keys(self.store):
            kind = (await self.client.type(key)).decode()
            picture[key] = await {
                "string": lambda key: self.client.get(key),
                "hash": lambda key: self.client.hgetall(key),
                "list": lambda key: self.client.lrange(key, 0, -1),
                "zset": lambda key: self.client.zrange(key, 0, -1, withscores=True),
                "stream": lambda key: self.client.xrange(key),
            }[kind](key)
        return picture

    async def check_repeats(self, name: str, args: list[Any], seq_at: int) -> list[Any]:
        """A numbered call sent twice counts once; an older number is refused. Gives the answer back."""
        caller = self.new_caller()
        args[seq_at] = 7
        answer = await self.call(name, *args, caller=caller)
        after = await self.picture()
        assert await self.call(name, *args, caller=caller) == answer
        assert await self.picture() == after
        args[seq_at] = 6
        with pytest.raises(StoreError, match="REPEATED"):
            await self.call(name, *args, caller=caller)
        assert await self.picture() == after
        return answer
