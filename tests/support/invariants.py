"""Invariant 1 over a whole namespace, for the fixtures of every suite that leaves jobs behind.

A job's record is in exactly one place, every place holds only jobs with a record, and what is derived from
the places (tallies, the ring, marks) agrees with them. Of schedules: each has a rule, a state and a name in
the roster, and those that are enabled, and no others, will be looked at. Reads plain keys, never through a
script: a wrong script must not hide its own fault. The store must be quiet meanwhile.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from redisched.codec import decode_runs
from redisched.errors import PayloadUndecodable
from redisched.keys import SHARD_KEYS, ShardKeys
from redisched.store import Store

BELLS_KEPT = 16
TTL_KINDS = tuple(name for name, what in SHARD_KEYS.items() if "TTL" in what)
LEASE = re.compile(r"(?P<id>.+)#(?P<fence>\d+)@(?P<worker>\S+)")
HEADER = re.compile(rb"([qd]) (\S+) \d+ \d+(?: (\S+) (\d+))?\n")  # mark and size may be left out
RINGED = re.compile(r"[hnlHNL]+ \d+")
STATE = re.compile(r"\d+ \d+ (?P<mode>[-pewgcd])( \d+){6} (?P<live>-|\d+/\d+|\d+(!\w+)?(,\d+(!\w+)?)*)")
PACE = re.compile(r"\d+ \d+ \d+ \d+")


async def namespace_keys(store: Store) -> list[str]:
    """Every key of the namespace, also those that should not be there."""
    names: list[str] = []
    for pattern in (f"{{{store.settings.namespace}:*", f"{store.settings.namespace}:*"):
        names += [key.decode() async for key in store.client.scan_iter(match=pattern, count=1_000)]
    return sorted(set(names))


async def check_invariants(store: Store) -> list[str]:
    """What is wrong, a line each; nothing: all is well."""
    keys = await namespace_keys(store)
    wrong = []
    known = {store.keys.meta, store.keys.members, store.keys.declared}
    for shard in store.keys.shards:
        mine = {key.removeprefix(shard.tag): key for key in keys if key.startswith(shard.tag)}
        known.update(mine.values())
        audit = ShardAudit(store, shard)
        await audit.read(mine)
        wrong += [f"{shard.tag} {line}" for line in audit.violations()]
    return wrong + [f"{key}: no key of redisched" for key in keys if key not in known]


class ShardAudit:
    """One shard: what was read of it, and what is wrong with that."""

    def __init__(self, store: Store, keys: ShardKeys) -> None:
        self._client = store.client
        self._keys = keys
        self._wrong: list[str] = []
        self._jobs: dict[str, bytes] = {}
        self._fields: dict[str, dict[str, str]] = {"ringed": {}, "tally": {}, "planned": {}, "pace": {}}
        self._ring: list[str] = []
        self._fence = 0
        self._due: list[str] = []
        self._leases: list[str] = []
        self._dead: list[tuple[str, str]] = []  # entry, id
        self._lanes: dict[str, list[str]] = {}
        self._overflows: dict[str, list[str]] = {}
        self._bodies: set[str] = set()
        self._roster: set[str] = set()
        self._looks: dict[str, float] = {}
        self._histories: dict[str, list[bytes]] = {}

    # -- reading

    async def read(self, mine: dict[str, str]) -> None:
        for name, key in mine.items():
            word, colon, rest = name.partition(":")
            kind = word + colon
            if kind not in SHARD_KEYS or (colon and not rest):
                self._wrong.append(f"{name}: no key of redisched")
                continue
            await self._check_key(kind, name, key)
        for name in ("bell", "alarm"):
            if (length := await self._client.llen(self._keys[name])) > BELLS_KEPT:
                self._wrong.append(f"{name} holds {length} hints")
        self._fence = int(await self._client.get(self._keys["fence"]) or 0)

    async def _check_key(self, kind: str, name: str, key: str) -> None:
        found, ttl_ms = (await self._client.type(key)).decode(), await self._client.pttl(key)
        if found == "none":
            return  # its time ended between the look for keys and this one
        if found != SHARD_KEYS[kind].partition(":")[0]:
            self._wrong.append(f"{name} is a {found}, not a {SHARD_KEYS[kind].partition(':')[0]}")
        elif kind in TTL_KINDS and ttl_ms == -1:
            self._wrong.append(f"{name} has no TTL")
        elif kind not in TTL_KINDS and ttl_ms >= 0:
            self._wrong.append(f"{name} has a TTL")
        elif kind in ("plan", "roster", "plans", "history:"):
            await self._read_plans(kind, name.partition(":")[2], key)
        else:
            await self._read_value(kind, name.partition(":")[2], key)

    async def _read_value(self, kind: str, rest: str, key: str) -> None:
        if kind == "jobs":
            self._jobs = {k.decode(): v for k, v in (await self._client.hgetall(key)).items()}
        elif kind in self._fields:
            self._fields[kind] = {k.decode(): v.decode() for k, v in (await self._client.hgetall(key)).items()}
        elif kind == "ring":
            self._ring = _text(await self._client.lrange(key, 0, -1))
        elif kind == "due":
            self._due = _text(await self._client.zrange(key, 0, -1))
        elif kind == "leases":
            self._leases = _text(await self._client.zrange(key, 0, -1))
        elif kind == "overflow:":
            self._overflows[rest] = _text(await self._client.zrange(key, 0, -1))
        elif kind == "lane:":
            self._lanes[rest] = [f[b"i"].decode() for _, f in await self._client.xrange(key)]
        elif kind == "dead":
            self._dead = [(e.decode(), f[b"id"].decode()) for e, f in await self._client.xrange(key)]

    async def _read_plans(self, kind: str, rest: str, key: str) -> None:
        if kind == "plan":
            self._bodies = set(_text(await self._client.hkeys(key)))
        elif kind == "roster":
            self._roster = set(_text(await self._client.zrange(key, 0, -1)))
        elif kind == "plans":
            self._looks = {k.decode(): at for k, at in await self._client.zrange(key, 0, -1, withscores=True)}
        else:
            self._histories[rest] = [fields[b"r"] for _, fields in await self._client.xrange(key)]

    # -- judging

    def violations(self) -> list[str]:
        checks = (
            self._places(),
            self._headers(),
            self._tallies(),
            self._ring_list(),
            self._leases_and_fence(),
            self._plans(),
            self._plan_states(),
        )
        return self._wrong + [line for check in checks for line in check]

    def _lane_of(self, job_id: str) -> str:
        match = HEADER.match(self._jobs.get(job_id, b""))
        return match[2].decode() if match else ""

    def _all_places(self) -> Iterator[tuple[str, str, str | None]]:
        """Place, id, and the lane that the place says, if it does."""
        for member in self._due:
            lane, _, job_id = member.partition("/")
            yield "due", job_id, lane
        for name, members in self._overflows.items():
            for member in members:
                lane, _, job_id = member.partition("/")
                yield f"overflow:{name}", job_id, lane
                if lane != name:
                    self._wrong.append(f"overflow:{name} holds {member}")
        for name, ids in self._lanes.items():
            for job_id in ids:
                yield f"lane:{name}", job_id, name
        for member in self._leases:
            yield "leases", _lease_id(member), None
        for _, job_id in self._dead:
            yield "dead", job_id, None

    def _places(self) -> Iterator[str]:
        places: dict[str, list[str]] = {job_id: [] for job_id in self._jobs}
        for place, job_id, lane in self._all_places():
            if job_id not in self._jobs:
                yield f"{place} holds {job_id}, which has no record"
                continue
            places[job_id].append(place)
            if lane not in (None, self._lane_of(job_id)):
                yield f"{place} holds {job_id}, whose record names lane {self._lane_of(job_id)!r}"
        for job_id, found in places.items():
            if len(found) != 1:
                yield f"job {job_id} is in {' and '.join(found) or 'no place'}"
        for name, ids in self._lanes.items():
            if not ids:
                yield f"lane:{name} is empty and was not deleted"

    def _headers(self) -> Iterator[str]:
        dead = {job_id: entry for entry, job_id in self._dead}
        for job_id, raw in self._jobs.items():
            match = HEADER.match(raw)
            if not match or len(raw) < match.end() + int(match[4] or 0):
                yield f"job {job_id}: no record: {raw[:40]!r}"
            elif (match[1] == b"d") != (job_id in dead):
                place = "is" if job_id in dead else "is not"
                yield f"job {job_id} has state {match[1].decode()}, but {place} in dead"
            elif match[1] == b"d" and match[3] != dead[job_id].encode():
                yield f"job {job_id} is marked {match[3]!r}, its entry in dead is {dead[job_id]}"

    def _tallies(self) -> Iterator[str]:
        real: Counter[str] = Counter(f"w {_tenant(member)}" for member in self._due)
        real.update(f"r {_tenant(self._lane_of(_lease_id(member)))}" for member in self._leases)
        real.update(f"d {_tenant(self._lane_of(job_id))}" for _, job_id in self._dead)
        kept = self._fields["tally"]
        for field in sorted(set(real) | set(kept)):
            if kept.get(field) != (str(real[field]) if real[field] else None):
                yield f"tally {field!r} is {kept.get(field)}, counted {real[field]}"

    def _ring_list(self) -> Iterator[str]:
        ringed = self._fields["ringed"]
        for tenant, times in Counter(self._ring).items():
            if times > 1:
                yield f"{tenant} is in the ring {times} times"
        for tenant in sorted(set(self._ring) ^ set(ringed)):
            yield f"{tenant} is only in {'the ring' if tenant in self._ring else 'ringed'}"
        for tenant, state in ringed.items():
            marks = state.partition(" ")[0]
            if not RINGED.fullmatch(state) or len(set(marks)) != len(marks):
                yield f"ringed {tenant} is {state!r}"
        held = [(lane, _letter(lane)) for lane, ids in self._lanes.items() if ids]
        held += [(lane, _letter(lane).upper()) for lane in self._overflows]
        for lane, mark in held:
            if mark not in ringed.get(_tenant(lane), "").partition(" ")[0]:
                yield f"lane {lane} holds work, but is not marked {mark}"

    def _leases_and_fence(self) -> Iterator[str]:
        fences = []
        for member in self._leases:
            match = LEASE.fullmatch(member)
            if not match:
                yield f"leases holds {member!r}"
                continue
            fences.append(int(match["fence"]))
        if len(set(fences)) != len(fences):
            yield "two leases have the same fence"
        if fences and max(fences) > self._fence:
            yield f"a lease has fence {max(fences)}, the last one given is {self._fence}"

    def _plans(self) -> Iterator[str]:
        """The four keys of schedules name the same ones."""
        states = self._fields["planned"]
        places = {"plan": self._bodies, "planned": {n for n in states if n[-1] != "!"}, "roster": self._roster}
        for name in sorted(set().union(*places.values())):
            if missing := [place for place, names in places.items() if name not in names]:
                yield f"schedule {name} is not in {' and '.join(missing)}"
        looked_at = set()
        for name, state in states.items():
            match = STATE.fullmatch(state)
            if name[-1] == "!" and name[:-1] not in states:
                yield f"backfill {name} has no schedule"
            if name[-1] == "!" or (match and match["mode"] not in "pe"):
                looked_at.add(name)
        for name in sorted(looked_at - set(self._looks)):
            yield f"schedule {name} is enabled, but not in plans"
        for name in sorted(set(self._looks) - looked_at):
            yield f"plans holds {name}, which is not enabled"
        for name in sorted(name for name in self._histories if name not in states):
            yield f"history:{name} has no schedule"

    def _plan_states(self) -> Iterator[str]:
        """What is written of schedules can be read."""
        for name, state in self._fields["planned"].items():
            match = STATE.fullmatch(state)
            if not match or ("/" in match["live"]) != (name[-1] == "!"):
                yield f"schedule {name}: no state: {state!r}"
        for name, at in self._looks.items():
            if not math.isfinite(at):
                yield f"schedule {name} is looked at {at}"
        for tenant, pace in self._fields["pace"].items():
            if not PACE.fullmatch(pace):
                yield f"pace {tenant} is {pace!r}"
        for name, runs in self._histories.items():
            for run in runs:
                try:
                    (_,) = decode_runs(run)
                except (PayloadUndecodable, ValueError):
                    yield f"history:{name} holds {run!r}"


def _text(values: list[Any]) -> list[str]:
    return [value.decode() for value in values]


def _tenant(lane_or_member: str) -> str:
    return re.split("[:/]", lane_or_member, maxsplit=1)[0]


def _letter(lane: str) -> str:
    return lane.partition(":")[2] or "n"


def _lease_id(member: str) -> str:
    match = LEASE.fullmatch(member)
    return match["id"] if match else member
