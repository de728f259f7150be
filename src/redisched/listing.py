"""Lists of jobs, place by place, for the inspector and through it the CLI and HTTP API. Floor 6; read-only.

A list by state reads that state's place and only the records it shows, 500 in a round trip: asking for
what runs costs the same beside ten waiting jobs and beside ten million. A job that moves while the
list is made may be missing or shown where it was.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from redisched import codec
from redisched.clock import from_ms
from redisched.errors import PayloadUndecodable
from redisched.keys import DEFAULT_TENANT, ShardKeys, encode_tenant
from redisched.model import JobView
from redisched.state import State
from redisched.store import Store

STEP = 500
ORDER = (State.RUNNING, State.READY, State.WAITING, State.DEAD)

Seen = tuple[bytes, dict[str, Any]]  # a job's id and what its place says of it


async def list_jobs(
    store: Store,
    *,
    state: State | None = None,
    tenant: str | None = None,
    name: str | None = None,
    limit: int = 50,
) -> list[JobView]:
    """Running jobs first, then ready, waiting (the next one first) and dead ones (the last one first)."""
    found: list[JobView] = []
    shards = store.keys.shards
    if tenant is not None and tenant != DEFAULT_TENANT:
        shards = [shards[store.keys.shard_of(tenant, "")]]
    for place in ORDER if state is None else (state,):
        views: list[JobView] = []
        for keys in shards:
            views += await _Lister(store, keys, place, tenant, name).first(limit - len(found))
        if place is State.WAITING:
            views.sort(key=lambda view: view.run_at or from_ms(0))
        elif place is State.DEAD:
            views.sort(key=lambda view: view.died_at or from_ms(0), reverse=True)
        found += views[: limit - len(found)]
        if len(found) >= limit:
            break
    return found


class _Lister:
    """One state of one shard."""

    def __init__(self, store: Store, keys: ShardKeys, state: State, tenant: str | None, name: str | None) -> None:
        self._store = store
        self._keys = keys
        self._state = state
        self._tenant = tenant
        self._name = name

    async def first(self, count: int) -> list[JobView]:
        views: list[JobView] = []
        async for seen in self._steps():
            if len(views) >= count:
                break
            if not seen:
                continue
            records = await self._read("hmget", self._keys["jobs"], [job_id for job_id, _ in seen])
            for (job_id, said), raw in zip(seen, records, strict=True):
                # no record: it ended between the two reads
                if raw is not None and (view := self._view(job_id, said, raw)) is not None:
                    views.append(view)
        return views[:count]

    def _view(self, job_id: bytes, said: dict[str, Any], raw: bytes) -> JobView | None:
        try:
            facts = facts_of(codec.open_record(raw))
        except PayloadUndecodable as error:
            facts = {"tenant": "", "name": "?", "error": str(error)}
        if self._tenant not in (None, facts["tenant"]) or self._name not in (None, facts["name"]):
            return None
        return JobView(id=job_id.decode("utf-8", "backslashreplace"), state=self._state, **(facts | said))

    def _steps(self) -> AsyncIterator[list[Seen]]:
        walks = {State.RUNNING: self._running, State.READY: self._ready, State.WAITING: self._waiting}
        return walks.get(self._state, self._dead)()

    async def _running(self) -> AsyncIterator[list[Seen]]:
        cursor = 0
        while True:
            cursor, pairs = await self._read("zscan", self._keys["leases"], cursor, count=STEP)
            yield [running_facts(member, int(ends_ms)) for member, ends_ms in pairs]
            if cursor == 0:
                return

    async def _ready(self) -> AsyncIterator[list[Seen]]:
        async for lane in self._marked("hnl"):
            after = b"-"
            while entries := await self._read("xrange", self._keys.lane(lane), after, "+", STEP):
                yield [(next(iter(fields.values())), {}) for _, fields in entries]
                after = b"(" + entries[-1][0]

    async def _waiting(self) -> AsyncIterator[list[Seen]]:
        async for lane in self._marked("HNL"):
            async for step in self._ranked(self._keys.overflow(lane)):
                yield step
        async for step in self._ranked(self._keys["due"]):
            yield step

    async def _ranked(self, key: str) -> AsyncIterator[list[Seen]]:
        at = 0
        while pairs := await self._read("zrange", key, at, at + STEP - 1, withscores=True):
            yield [(member.partition(b"/")[2], {"run_at": from_ms(int(when))}) for member, when in pairs]
            at += STEP

    async def _dead(self) -> AsyncIterator[list[Seen]]:
        before = b"+"
        while entries := await self._read("xrevrange", self._keys["dead"], before, "-", STEP):
            yield [
                (said[b"id"], {"died_at": died_at(entry), "error": said[b"error"].decode("utf-8", "replace")})
                for entry, said in entries
            ]
            before = b"(" + entries[-1][0]

    async def _marked(self, letters: str) -> AsyncIterator[str]:
        """The lanes that the ring says hold work; of one tenant, if one was asked for."""
        cursor = 0
        wanted = encode_tenant(self._tenant).encode() if self._tenant is not None else None
        while True:
            cursor, chunk = await self._read("hscan", self._keys["ringed"], cursor, count=STEP)
            for tenant, state in chunk.items():
                for mark in state.partition(b" ")[0].decode():
                    if mark in letters and wanted in (None, tenant):
                        yield tenant.decode() + {"h": ":h", "n": "", "l": ":l"}[mark.lower()]
            if cursor == 0:
                return

    async def _read(self, command: str, *args: Any, **options: Any) -> Any:
        return await self._store.read(lambda: getattr(self._store.client, command)(*args, **options))


def facts_of(record: codec.Record) -> dict[str, Any]:
    """What a record says of its job, as fields of a JobView."""
    body = record.body
    runs = codec.decode_runs(record.runs)
    return {
        "tenant": record.tenant,
        "name": body.name,
        "priority": record.priority,
        "scheduled_at": from_ms(body.at_ms) if body.at_ms else None,
        "attempts": record.attempts,
        "max_attempts": record.max_attempts,
        "key": body.key,
        "runs": runs,
        "error": (runs[-1].error or None) if runs else None,
        "payload_bytes": record.payload_bytes,
        "args": args_of(body),
    }


def running_facts(member: bytes, ends_ms: int) -> Seen:
    """A lease `<id>#<fence>@<worker>`, taken apart."""
    job_id, _, rest = member.rpartition(b"#")
    fence, _, worker = rest.decode().partition("@")
    return job_id, {"lease_until": from_ms(ends_ms), "fence": int(fence), "worker": worker}


def died_at(entry: bytes) -> Any:
    return from_ms(int(entry.partition(b"-")[0]))


def args_of(body: codec.Body) -> Any:
    try:
        return codec.decode_any(body.args)
    except Exception as error:  # any bytes may stand there; a list must go on
        return f"<undecodable: {error}>"
