"""Read-only questions about the store, for handles, the CLI and the HTTP API. Changes nothing.

Answers come from several reads and are a picture of a moving thing; where one consistent answer
matters (where is this job?) one script gives it. Long walks go in steps, so that no question
holds up the server.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from redisched import codec
from redisched.clock import from_ms
from redisched.errors import PayloadUndecodable
from redisched.keys import ShardKeys, decode_tenant
from redisched.listing import args_of, died_at, facts_of, list_jobs, running_facts
from redisched.model import DeadLetter, JobView, Outcome, Run, Stats, TenantStats
from redisched.state import State
from redisched.store import Store

STEP = 500  # entries of a long walk in one read


class Inspector:
    def __init__(self, store: Store) -> None:
        self._store = store

    # -- one job

    async def job(self, job_id: str, tenant: str | None = None) -> JobView:
        """Where a job is and what is known of it. Without a tenant, all shards are asked."""
        store = self._store
        shards = [store.keys.shard_of(tenant, job_id)] if tenant is not None else range(store.shards)
        for shard in shards:
            word, raw, place = await store.locate(shard, job_id)
            if word == "gone":
                continue
            if word == "kept":
                return _kept_view(job_id, tenant or "", raw)
            return await self._living_view(shard, job_id, word, raw, place)
        return JobView(job_id, tenant or "", State.GONE)

    async def lease_of(self, shard: int, job_id: str) -> str | None:
        """The lease under which a job runs now: `<id>#<fence>@<worker>`."""
        found = await self._lease(shard, job_id)
        return found[0] if found else None

    async def _lease(self, shard: int, job_id: str) -> tuple[str, int] | None:
        leases = self._store.keys.shards[shard]["leases"]
        pattern = "".join("\\" + c if c in "*?[]\\" else c for c in job_id) + "#*"
        cursor = 0
        while True:
            cursor, pairs = await self._store.read(
                lambda at=cursor: self._store.client.zscan(leases, at, match=pattern, count=STEP)  # type: ignore[misc]
            )
            for member, score in pairs:
                if member.decode().rpartition("#")[0] == job_id:
                    return member.decode(), int(score)
            if cursor == 0:
                return None

    async def _living_view(self, shard: int, job_id: str, word: str, raw: bytes, place: bytes) -> JobView:
        facts = facts_of(codec.open_record(raw))
        if word in ("waiting", "overflow"):
            facts["run_at"] = from_ms(int(float(place)))
        elif word == "ready":
            facts["position"] = int(place)
        elif word == "dead":
            facts["died_at"] = died_at(place)
        elif lease := await self._lease(shard, job_id):
            facts |= running_facts(lease[0].encode(), lease[1])[1]
            key = self._store.keys.shards[shard].progress(job_id)
            progress = await self._store.read(lambda: self._store.client.get(key))
            facts["progress"] = progress.decode() if progress else None
        state = State.WAITING if word == "overflow" else State(word)
        return JobView(id=job_id, state=state, **facts)

    # -- many jobs

    async def jobs(
        self,
        *,
        state: State | None = None,
        tenant: str | None = None,
        name: str | None = None,
        limit: int = 50,
    ) -> list[JobView]:
        """Living and dead jobs: see `listing.py`."""
        return await list_jobs(self._store, state=state, tenant=tenant, name=name, limit=limit)

    # -- dead letters

    async def dead(
        self,
        *,
        tenant: str | None = None,
        name: str | None = None,
        limit: int | None = 50,
        shard: int | None = None,
    ) -> AsyncIterator[tuple[int, DeadLetter]]:
        """Dead letters with their shards, newest first within a shard."""
        seen = 0
        for keys in self._store.keys.shards if shard is None else [self._store.keys.shards[shard]]:
            last = "+"
            while limit is None or seen < limit:
                entries = await self._store.read(
                    lambda k=keys, end=last: self._store.client.xrevrange(k["dead"], end, "-", STEP)  # type: ignore[misc]
                )
                if not entries:
                    break
                letters = await self._letters(keys, entries)
                for letter in letters:
                    if tenant in (None, letter.tenant) and name in (None, letter.name):
                        yield keys.shard, letter
                        seen += 1
                        if limit is not None and seen >= limit:
                            return
                last = "(" + entries[-1][0].decode()

    async def _letters(self, keys: ShardKeys, entries: list[Any]) -> list[DeadLetter]:
        ids = [fields[b"id"] for _, fields in entries]
        records = await self._store.read(lambda: self._store.client.hmget(keys["jobs"], ids))
        letters = []
        for (entry, fields), raw in zip(entries, records, strict=True):
            name, attempts, args = "?", 0, None
            runs: tuple[Run, ...] = ()
            if raw is not None:
                try:
                    record = codec.open_record(raw)
                    name, attempts, args = record.body.name, record.attempts, args_of(record.body)
                    runs = codec.decode_runs(record.runs)
                except PayloadUndecodable:
                    pass
            letters.append(
                DeadLetter(
                    id=fields[b"id"].decode(),
                    tenant=decode_tenant(fields[b"tenant"].decode()),
                    name=name,
                    died_at=from_ms(int(entry.partition(b"-")[0])),
                    error=fields[b"error"].decode("utf-8", "replace"),
                    attempts=attempts,
                    entry=entry.decode(),
                    runs=runs,
                    args=args,
                )
            )
        return letters

    # -- stats

    async def stats(self) -> Stats:
        """Every tenant that has work, summed over its shards."""
        store = self._store
        now_ms = await self.now_ms()
        found: dict[str, dict[str, float]] = {}
        totals: dict[str, int] = {}
        next_due: int | None = None
        for keys in store.keys.shards:
            next_due = await self._shard_stats(keys, now_ms, found, totals, next_due)
        tenants = tuple(
            TenantStats(
                tenant=name,
                waiting=int(f.get("w", 0)),
                ready=int(f.get("ready", 0)),
                running=int(f.get("r", 0)),
                dead=int(f.get("d", 0)),
                lag_ms=int(f.get("lag", 0)),
                done_per_s=round(f.get("rate", 0.0), 2),
            )
            for name, f in sorted(found.items())
        )
        schedules, enabled, next_plan = await self._schedules()
        members = await store.read(lambda: store.client.zrangebyscore(store.keys.members, now_ms, "+inf"))
        return Stats(
            at=from_ms(now_ms),
            shards=store.shards,
            tenants=tenants,
            totals=totals,
            members=tuple(m.decode() for m in members),
            next_due=from_ms(next_due) if next_due is not None else None,
            schedules=schedules,
            schedules_enabled=enabled,
            next_schedule=from_ms(next_plan) if next_plan is not None else None,
        )

    async def _schedules(self) -> tuple[int, int, int | None]:
        """How many there are, how many are enabled, and when the first is looked at."""
        client, read = self._store.client, self._store.read
        total = enabled = 0
        first: int | None = None
        for keys in self._store.keys.shards:
            total += await read(lambda k=keys: client.zcard(k["roster"]))  # type: ignore[misc]
            enabled += await read(lambda k=keys: client.zcard(k["plans"]))  # type: ignore[misc]
            head = await read(lambda k=keys: client.zrange(k["plans"], 0, 0, withscores=True))  # type: ignore[misc]
            if head and (first is None or head[0][1] < first):
                first = int(head[0][1])
        return total, enabled, first

    async def now_ms(self) -> int:
        """The time that decides: Redis', or the test's."""
        return await self._store.clock_ms()

    async def _shard_stats(
        self,
        keys: ShardKeys,
        now_ms: int,
        found: dict[str, dict[str, float]],
        totals: dict[str, int],
        next_due: int | None,
    ) -> int | None:
        client, read = self._store.client, self._store.read
        tally = await read(lambda: client.hgetall(keys["tally"]))
        ringed = await read(lambda: client.hgetall(keys["ringed"]))
        head = await read(lambda: client.zrange(keys["due"], 0, 0, withscores=True))
        minute = now_ms // 60_000
        rates = [await read(lambda m=m: client.hgetall(keys.rate(m))) for m in (minute - 1, minute)]  # type: ignore[misc]
        for field, count in (await read(lambda: client.hgetall(keys["totals"]))).items():
            if field == b"versions":
                continue  # no event: see lua/unschedule.lua
            totals[field.decode()] = totals.get(field.decode(), 0) + int(count)
        for field, count in tally.items():
            place, _, encoded = field.decode().partition(" ")
            _add(found, encoded, place, int(count))
        window_s = 60 + now_ms % 60_000 / 1000
        for counted in rates:
            for encoded, count in counted.items():
                _add(found, encoded.decode(), "rate", int(count) / window_s)
        for encoded, state in ringed.items():
            await self._lane_stats(keys, encoded.decode(), state.split(b" ")[0].decode(), now_ms, found)
        if head:
            due_ms = int(head[0][1])
            if due_ms < now_ms:
                # overdue in `due` itself: promotion is behind, and whose job it is tells the lag
                encoded = head[0][0].decode().partition("/")[0].partition(":")[0]
                _most(found, encoded, "lag", now_ms - due_ms)
            return due_ms if next_due is None else min(next_due, due_ms)
        return next_due

    async def _lane_stats(
        self, keys: ShardKeys, encoded: str, marks: str, now_ms: int, found: dict[str, dict[str, float]]
    ) -> None:
        client, read = self._store.client, self._store.read
        for mark in marks:
            lane = encoded + {"h": ":h", "n": "", "l": ":l"}[mark.lower()]
            key = keys.lane(lane) if mark.islower() else keys.overflow(lane)
            if mark.islower():
                _add(found, encoded, "ready", await read(lambda k=key: client.xlen(k)))  # type: ignore[misc]
                first = await read(lambda k=key: client.xrange(k, count=1))  # type: ignore[misc]
                since = int(first[0][0].partition(b"-")[0]) if first else now_ms
            else:
                _add(found, encoded, "w", await read(lambda k=key: client.zcard(k)))  # type: ignore[misc]
                spilled = await read(lambda k=key: client.zrange(k, 0, 0, withscores=True))  # type: ignore[misc]
                since = int(spilled[0][1]) if spilled else now_ms
            _most(found, encoded, "lag", now_ms - since)


def _add(found: dict[str, dict[str, float]], encoded: str, what: str, count: float) -> None:
    counts = found.setdefault(decode_tenant(encoded), {})
    counts[what] = counts.get(what, 0) + count


def _most(found: dict[str, dict[str, float]], encoded: str, what: str, value: float) -> None:
    counts = found.setdefault(decode_tenant(encoded), {})
    counts[what] = max(counts.get(what, 0), value)


def _kept_view(job_id: str, tenant: str, raw: bytes) -> JobView:
    if raw == codec.CANCELLED:
        return JobView(job_id, tenant, State.GONE, outcome="cancelled")
    kept = codec.decode_result(raw)
    run = Run(kept.attempt, kept.worker, from_ms(kept.started_ms), from_ms(kept.ended_ms), Outcome.DONE)
    runs = (*codec.decode_runs(kept.runs), run)
    error = kept.error or None
    return JobView(job_id, tenant, State.GONE, outcome="done", attempts=kept.attempt, runs=runs, error=error)
