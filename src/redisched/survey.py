"""The doctor's first look at a shard: a walk in bounded steps that finds whom to look at again. Floor 6.

Jobs move while it walks, so what it yields are suspects, never findings: a job that was promoted
between two reads looks as if it were in two places, or in none. `doctor.py` confirms each in one
atomic script. It keeps in memory what is ready, running and dead, all of which are bounded; what waits
(perhaps millions) passes by in steps. It changes nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from redisched.keys import ShardKeys, prefix_of
from redisched.store import Store

STEP = 500
RECORD_STEP = 200  # records come with their payloads
LONGEST_LEASE_MS = 86_400_000  # a lease that ends later than this from now is absurd

_HEAD = re.compile(rb"([qd]) (\S+) (\d+) (\d+)(?: (\S+) (\d+))?\n")  # a new record has no mark and size
Place = tuple[str, bytes]  # kind and where, as in lua/lib/places.lua


@dataclass(frozen=True, slots=True)
class Suspect:
    """A job to look at again, and the places it was seen in."""

    id: bytes
    places: tuple[Place, ...]


@dataclass(slots=True)
class Survey:
    """One shard. Walk `suspects()` to its end; then `tenants` holds whose counts or marks look wrong."""

    store: Store
    keys: ShardKeys
    lanes: frozenset[bytes]  # names of the lanes that have a stream
    overflows: frozenset[bytes]  # and of those that have an overflow
    now_ms: int
    records: int = 0
    overdue_leases: int = 0
    tenants: set[bytes] = field(default_factory=set)
    known_tenants: set[bytes] = field(default_factory=set)
    _placed: dict[bytes, list[Place]] = field(default_factory=dict)
    _counts: Counter[tuple[str, bytes]] = field(default_factory=Counter)

    async def suspects(self) -> AsyncIterator[Suspect]:
        async for suspect in self._leases():
            yield suspect
        await self._lanes()
        await self._dead()
        async for suspect in self._records():
            yield suspect
        # What no record was seen for: it ended meanwhile, or it is an entry without a record.
        for job_id, places in self._placed.items():
            yield Suspect(job_id, tuple(places))
        async for suspect in self._sorted("due", self.keys["due"], b""):
            yield suspect
        for lane in self.overflows:
            async for suspect in self._sorted("overflow", self.keys.overflow(lane.decode()), lane + b" "):
                yield suspect
        await self._tally()
        await self._ring()

    # -- the places that fit into memory

    def _place(self, job_id: bytes, kind: str, where: bytes) -> None:
        self._placed.setdefault(job_id, []).append((kind, where))

    async def _leases(self) -> AsyncIterator[Suspect]:
        cursor = 0
        while True:
            cursor, pairs = await self._read("zscan", self.keys["leases"], cursor, count=STEP)
            for member, ends_ms in pairs:
                job_id = member.rpartition(b"#")[0] or member
                self._place(job_id, "lease", member)
                if not ends_ms <= self.now_ms + LONGEST_LEASE_MS:
                    yield Suspect(job_id, (("lease", member),))
                # Recovery looks twice a second: a lease that ended so long ago has nobody to take it back.
                self.overdue_leases += ends_ms < self.now_ms - 10_000
            if cursor == 0:
                return

    async def _lanes(self) -> None:
        for lane in self.lanes:
            async for _, fields in self._stream(self.keys.lane(lane.decode())):
                self._place(next(iter(fields.values())), "lane", lane)

    async def _dead(self) -> None:
        async for entry, fields in self._stream(self.keys["dead"]):
            self._place(fields.get(b"id", b""), "dead", entry)
            self._counts["d", fields.get(b"tenant", b"")] += 1

    async def _stream(self, key: str) -> AsyncIterator[tuple[bytes, dict[bytes, bytes]]]:
        after = b"-"
        while True:
            entries = await self._read("xrange", key, after, "+", STEP)
            for entry in entries:
                yield entry
            if len(entries) < STEP:
                return
            after = b"(" + entries[-1][0]

    # -- the records, and what waits

    async def _records(self) -> AsyncIterator[Suspect]:
        cursor = 0
        while True:
            cursor, chunk = await self._read("hscan", self.keys["jobs"], cursor, count=RECORD_STEP)
            if chunk:
                async for suspect in self._judge(chunk):
                    yield suspect
            if cursor == 0:
                return

    async def _judge(self, chunk: dict[bytes, bytes]) -> AsyncIterator[Suspect]:
        heads = {job_id: head_of(raw) for job_id, raw in chunk.items()}
        members = [(head[1] if head else b"") + b"/" + job_id for job_id, head in heads.items()]
        in_due = await self._read("zmscore", self.keys["due"], members)
        spilled = await self._spilled(heads)
        self.records += len(chunk)
        for (job_id, head), member, at in zip(heads.items(), members, in_due, strict=True):
            # Taken out: what remains in the end has no record. One that HSCAN gives twice is looked at again.
            places = self._placed.pop(job_id, [])
            if at is not None:
                places.append(("due", member))
            if job_id in spilled:
                places.append(("overflow", (head[1] if head else b"") + b" " + member))
            if head and any(kind == "lease" for kind, _ in places):
                self._counts["r", tenant_of(head[1])] += 1
            if not fits(head, places):
                yield Suspect(job_id, tuple(places))

    async def _spilled(self, heads: dict[bytes, list[bytes] | None]) -> set[bytes]:
        by_lane: dict[bytes, list[bytes]] = {}
        for job_id, head in heads.items():
            if head and head[1] in self.overflows:
                by_lane.setdefault(head[1], []).append(job_id)
        found: set[bytes] = set()
        for lane, ids in by_lane.items():
            key = self.keys.overflow(lane.decode())
            scores = await self._read("zmscore", key, [lane + b"/" + job_id for job_id in ids])
            found.update(job_id for job_id, at in zip(ids, scores, strict=True) if at is not None)
        return found

    async def _sorted(self, kind: str, key: str, prefix: bytes) -> AsyncIterator[Suspect]:
        """Members of `due` or of an overflow that no living record of that lane stands behind."""
        cursor = 0
        while True:
            cursor, pairs = await self._read("zscan", key, cursor, count=RECORD_STEP)
            members = [member for member, _ in pairs]
            ids = [member.partition(b"/")[2] or member for member in members]
            records = await self._read("hmget", self.keys["jobs"], ids) if ids else []
            for member, job_id, raw in zip(members, ids, records, strict=True):
                lane = member.partition(b"/")[0]
                head = head_of(raw) if raw is not None else None
                if head is None or head[0] != b"q" or head[1] != lane or prefix not in (b"", lane + b" "):
                    yield Suspect(job_id, ((kind, prefix + member),))
                if kind == "due":
                    self._counts["w", tenant_of(lane)] += 1
            if cursor == 0:
                return

    # -- what is kept about tenants

    async def _tally(self) -> None:
        kept: dict[tuple[str, bytes], int] = {}
        cursor = 0
        while True:
            cursor, chunk = await self._read("hscan", self.keys["tally"], cursor, count=STEP)
            for name, count in chunk.items():
                place, _, tenant = name.partition(b" ")
                kept[place.decode(), tenant] = int(count)
            if cursor == 0:
                break
        for where in kept.keys() | self._counts.keys():
            self.known_tenants.add(where[1])
            if kept.get(where, 0) != self._counts[where]:
                self.tenants.add(where[1])

    async def _ring(self) -> None:
        times: Counter[bytes] = Counter()
        while chunk := await self._read("lrange", self.keys["ring"], (at := times.total()), at + STEP - 1):
            times.update(chunk)
        marks: dict[bytes, bytes] = {}
        cursor = 0
        while True:
            cursor, found = await self._read("hscan", self.keys["ringed"], cursor, count=STEP)
            marks |= {tenant: state.partition(b" ")[0] for tenant, state in found.items()}
            if cursor == 0:
                break
        self.tenants.update(tenant for tenant in times.keys() | marks.keys() if times[tenant] != (tenant in marks))
        self.known_tenants |= times.keys() | marks.keys()
        for names, letters in ((self.lanes, b"hnl"), (self.overflows, b"HNL")):
            for lane in names:
                tenant, _, letter = lane.partition(b":")
                mark = {b"h": 0, b"": 1, b"l": 2}.get(letter, 1)
                self.known_tenants.add(tenant)
                if letters[mark] not in marks.get(tenant, b""):
                    self.tenants.add(tenant)

    async def _read(self, command: str, *args: Any, **options: Any) -> Any:
        return await self.store.read(lambda: getattr(self.store.client, command)(*args, **options))


def head_of(raw: bytes) -> list[bytes] | None:
    """A record's header words, or None when it has none."""
    found = _HEAD.match(raw)
    return list(found.groups()) if found else None


def tenant_of(lane: bytes) -> bytes:
    return lane.partition(b":")[0]


def fits(head: list[bytes] | None, places: list[Place]) -> bool:
    """Is it in exactly one place, and that one right?"""
    if head is None or len(places) != 1:
        return False
    kind, where = places[0]
    if head[0] == b"d":
        return kind == "dead" and where == head[4]
    return kind in ("due", "overflow", "lease") or (kind == "lane" and where == head[1])


async def lanes_in_use(store: Store) -> dict[int, tuple[frozenset[bytes], frozenset[bytes]]]:
    """For each shard the names of its lanes and overflows. Walks the server's keys, a step at a time."""
    prefixes = {
        keys[kind].encode(): (keys.shard, n)
        for keys in store.keys.shards
        for n, kind in enumerate(("lane:", "overflow:"))
    }
    found: dict[int, tuple[set[bytes], set[bytes]]] = {k.shard: (set(), set()) for k in store.keys.shards}

    async def walk() -> None:
        for kind in ("lane:", "overflow:"):
            async for key in store.client.scan_iter(match=store.keys.pattern(kind), count=1000):
                prefix = prefix_of(key)
                if prefix in prefixes:
                    shard, n = prefixes[prefix]
                    found[shard][n].add(key[len(prefix) :])

    await store.read(walk)
    return {shard: (frozenset(lanes), frozenset(spilled)) for shard, (lanes, spilled) in found.items()}
