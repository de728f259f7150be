"""`Plan`: what `sched.schedule(...)` gives back; and `PlanBook`, which reads and changes schedules.

Called by `client.py` and through it by the CLI. Changes go through the store's scripts, each only if
the schedule is still at the version that was seen; reading changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar

import msgspec

from redisched.clock import from_ms, to_ms
from redisched.cron.rule import Rule, aware
from redisched.errors import (
    InvalidSchedule,
    PayloadUndecodable,
    QuotaExceeded,
    ScheduleChanged,
    StoreError,
    UnknownSchedule,
)
from redisched.handles import Job
from redisched.ids import random_name
from redisched.keys import DEFAULT_TENANT
from redisched.model import BackfillView, PlanRun, PlanView
from redisched.plan import PlanBody, Standing, Timetable, count_between, decode_plan, encode_plan, job_prefix, plan_name
from redisched.plan.body import check_keys, check_schedule_name, pack_rule, plan_range
from redisched.plan.standing import Mode
from redisched.plan.templates import is_text
from redisched.plan.views import plan_run, view_of
from redisched.settings import ClientSettings
from redisched.store import Store

MAX_BACKFILL: Final = 100_000
MAX_NOTE_CHARS: Final = 500
_TRIES: Final = 20
_PACE: Final = (1, 1)  # a trigger asks for no turn


class Plan:
    """One schedule. Keeps nothing but its name: every answer comes from the store."""

    __slots__ = ("_book", "name", "tenant", "version")

    def __init__(self, book: PlanBook, name: str, tenant: str, version: int = 0) -> None:
        self._book = book
        self.name = name
        self.tenant = tenant
        self.version = version  # as of the last change made through this handle; 0: not known

    def __repr__(self) -> str:
        return f"<Plan {self.name} of {self.tenant}>"

    async def view(self) -> PlanView:
        """All that is known of it now."""
        return await self._book.view(self.name, self.tenant)

    async def pause(self, note: str = "") -> None:
        """Its times make no more occurrences until it is resumed; what runs, runs on, and so does a backfill."""
        self.version = await self._book.set_paused(self.name, self.tenant, paused=True, note=note)

    async def resume(self) -> None:
        """Goes on. What fell into the pause follows the misfire policy."""
        self.version = await self._book.set_paused(self.name, self.tenant, paused=False)

    async def trigger(self) -> Job[Any]:
        """Makes an occurrence now, whatever runs and also when it is paused; its own times stay as they are."""
        return await self._book.trigger(self.name, self.tenant)

    async def backfill(self, start: datetime, end: datetime) -> Backfill:
        """Makes all occurrences from `start` to `end`, one after the other, paced as a catch-up is."""
        return await self._book.backfill(self.name, self.tenant, start, end)

    async def runs(self, limit: int = 20) -> list[PlanRun]:
        """What became of its occurrences, the newest first."""
        return await self._book.runs(self.name, self.tenant, limit)

    async def preview(self, count: int = 5) -> list[datetime]:
        """Its next nominal times."""
        return await self._book.preview(self.name, self.tenant, count)

    async def delete(self) -> bool:
        """Removes it with its history; what runs, runs on. False: it was not there."""
        return await self._book.delete(self.name, self.tenant)


class Backfill:
    """A backfill under way. It goes on without this handle."""

    __slots__ = ("_book", "name", "tenant", "total")

    def __init__(self, book: PlanBook, name: str, tenant: str, total: int) -> None:
        self._book = book
        self.name = name
        self.tenant = tenant
        self.total = total

    async def view(self) -> BackfillView | None:
        """How far it is; None: it has made all of them, or was stopped."""
        return (await self._book.view(self.name, self.tenant)).backfill

    async def stop(self) -> bool:
        """Makes no more; what was made stays. False: it had ended."""
        return await self._book.stop_backfill(self.name, self.tenant)

    async def wait(self, timeout: float | None = None) -> None:
        """Returns when all are made (not: run). Raises TimeoutError."""
        async with asyncio.timeout(timeout):
            while await self.view() is not None:
                await asyncio.sleep(0.05)


class PlanBook:
    """Schedules as the store has them."""

    def __init__(self, store: Store, settings: ClientSettings) -> None:
        self._store = store
        self._settings = settings
        self._caller = store.caller()

    def shard_of(self, name: str, tenant: str) -> int:
        return self._store.keys.shard_of(tenant, name)

    # -- changing

    async def put(self, wanted: PlanBody, rule: Rule, if_version: int | None = None) -> tuple[int, bool]:
        """Creates or replaces a schedule. Its version, and whether anything changed: the same again is no change."""
        name, tenant = wanted.schedule, wanted.tenant
        for _ in range(_TRIES):
            body, standing = await self._read(name, tenant)
            version = standing.version if standing else 0
            if if_version is not None and version != if_version:
                raise ScheduleChanged(name, if_version, version)
            now_ms = await self._store.clock_ms()
            wanted = msgspec.structs.replace(wanted, rule=pack_rule(rule, from_ms(now_ms)))
            if body is not None and standing is not None and body.says_the_same(wanted):
                return version, False
            answer = await self._put(body, standing, wanted, now_ms)
            if answer > 0:
                return answer, True
            if if_version is not None:
                raise ScheduleChanged(name, if_version, -1 - answer)
        raise ScheduleChanged(name, 0, -1 - answer)

    async def _put(self, body: PlanBody | None, standing: Standing | None, wanted: PlanBody, now_ms: int) -> int:
        created_ms, note = now_ms, ""
        mode, cursor, look = "-", "", "0"
        if body is not None and standing is not None:
            created_ms, note = body.created_ms, body.note
            mode = "p" if standing.mode is Mode.PAUSED else "-"
            if msgspec.structs.replace(wanted, rule=body.rule).says_the_same(wanted):
                # The same rule: it goes on where it stands, with the anchor it has.
                wanted = msgspec.structs.replace(wanted, rule=body.rule)
                mode = cursor = "="
                if standing.mode in (Mode.HELD, Mode.TURN):
                    look = "="  # it waits for something else than a time
        wanted = msgspec.structs.replace(wanted, created_ms=created_ms, changed_ms=now_ms, note=note)
        table = Timetable(wanted)
        check_keys(table, now_ms)
        if not cursor:
            first_ms = table.next_ms(now_ms)
            if not first_ms:
                raise InvalidSchedule(
                    f"{table.rule!r} never fires after {from_ms(now_ms).isoformat()}: nothing of it is left"
                )
            cursor, look = str(first_ms), str(table.look_ms(first_ms))
        row = [table.name, standing.version if standing else 0, encode_plan(wanted), mode, cursor, look]
        return await self._send(wanted.schedule, wanted.tenant, row)

    async def _send(self, name: str, tenant: str, row: Sequence[Any], *, keeps_history: bool = False) -> int:
        shard, quota = self.shard_of(name, tenant), self._settings.max_schedules
        others = await self.count(tenant, without=shard) if tenant == DEFAULT_TENANT and not row[1] else 0
        (answer,) = await self._store.schedule(shard, self._caller, quota, others, row, keeps_history=keeps_history)
        if answer == 0:
            raise QuotaExceeded(
                f"tenant {tenant!r} has {quota:,} schedules, which is its quota: delete some, "
                f"or raise Scheduler(max_schedules=...)"
            )
        return answer

    async def set_paused(self, name: str, tenant: str, *, paused: bool, note: str = "") -> int:
        """The new version; the old one when it was so already."""
        if not isinstance(note, str) or len(note) > MAX_NOTE_CHARS or not is_text(note):
            raise InvalidSchedule(f"a note is at most {MAX_NOTE_CHARS} characters, not {note!r:.80}")
        for _ in range(_TRIES):
            body, standing = await self._find(name, tenant)
            if (standing.mode is Mode.PAUSED) is paused and (not paused or note in ("", body.note)):
                return standing.version
            if standing.mode is Mode.ENDED:
                raise InvalidSchedule(f"schedule {name!r} has ended: nothing is left to pause or resume")
            changed = msgspec.structs.replace(body, note=note, changed_ms=await self._store.clock_ms())
            mode = "p" if paused else "-"
            if not paused and not standing.cursor_ms:
                # It counts from the end of its run, and was paused while that lasted.
                mode = "c"
            cursor = "="
            if standing.mode is Mode.RAN:
                # Its run has ended and nobody has looked yet: its next time is known now.
                cursor = f"+{Timetable(body).next_ms(standing.cursor_ms)}"
            row = [plan_name(tenant, name), standing.version, encode_plan(changed), mode, cursor, "0"]
            if (answer := await self._send(name, tenant, row, keeps_history=True)) > 0:
                return answer
        raise ScheduleChanged(name, standing.version, -1 - answer)

    async def delete(self, name: str, tenant: str) -> bool:
        check_schedule_name(name)
        return await self._store.unschedule(self.shard_of(name, tenant), self._caller, plan_name(tenant, name))

    async def trigger(self, name: str, tenant: str) -> Job[Any]:
        body, standing = await self._find(name, tenant)
        table = Timetable(msgspec.structs.replace(body, key=None))
        now_ms = await self._store.clock_ms()
        occurrence = f"{now_ms}!{random_name(6)}"
        words = f"t {standing.version} 0 {occurrence} {now_ms} 0 0 0 0 0 s 0"
        steps = (table.name, table.lane, table.record(now_ms), words)
        (made,) = await self._store.fire(self.shard_of(name, tenant), self._caller, _PACE, steps, numbered=True)
        if not made:
            raise UnknownSchedule(f"schedule {name!r} of tenant {tenant!r} was deleted meanwhile")
        return Job(self._store, job_prefix(tenant, name) + occurrence, tenant, body.call, None)

    async def backfill(self, name: str, tenant: str, start: datetime, end: datetime) -> Backfill:
        body, _ = await self._find(name, tenant)
        first_ms, last_ms = to_ms(aware("start", start)), to_ms(aware("end", end))
        if last_ms < first_ms:
            raise InvalidSchedule(f"the end {end.isoformat()} is before the start {start.isoformat()}")
        if last_ms > (now_ms := await self._store.clock_ms()):
            raise InvalidSchedule(
                f"the end {end.isoformat()} is yet to come (it is {from_ms(now_ms).isoformat()}): "
                f"a backfill makes what is past, the schedule itself the rest"
            )
        table = Timetable(body)
        if table.counts_from_completion:
            raise InvalidSchedule(f"schedule {name!r} counts from the end of its runs: it has no times in the past")
        count, first_ms = count_between(table, first_ms, last_ms, MAX_BACKFILL)
        if count == 0:
            raise InvalidSchedule(f"schedule {name!r} has no times from {start.isoformat()} to {end.isoformat()}")
        if count > MAX_BACKFILL:
            raise InvalidSchedule(
                f"schedule {name!r} has more than {MAX_BACKFILL:,} times from {start.isoformat()} to "
                f"{end.isoformat()}: backfill a shorter range"
            )
        shard = self.shard_of(name, tenant)
        answer = await self._store.backfill(shard, self._caller, table.name, first_ms, last_ms, count)
        if answer == 0:
            raise UnknownSchedule(f"schedule {name!r} of tenant {tenant!r} was deleted meanwhile")
        if answer < 0:
            raise InvalidSchedule(f"a backfill of schedule {name!r} is under way: wait for its end, or stop it")
        return Backfill(self, name, tenant, count)

    async def undeclared(self, origin: str, declared: Collection[tuple[str, str]]) -> list[tuple[str, str]]:
        """Tenant and name of the schedules that an application declared in code once and no more. One that was
        made anew by hand since then is not among them."""
        raw = await self._store.read(lambda: self._store.client.hget(self._store.keys.declared, origin))
        before = [(str(tenant), str(name)) for tenant, name in msgspec.json.decode(raw)] if raw else []
        gone = []
        for tenant, name in before:
            if (tenant, name) not in declared:
                body, _ = await self._read(name, tenant)
                if body is not None and body.origin == origin:
                    gone.append((tenant, name))
        return gone

    async def note_declared(self, origin: str, names: Sequence[tuple[str, str]]) -> None:
        """Notes what an application declares, and what it declared before and nobody removed."""
        key, client = self._store.keys.declared, self._store.client
        if names:
            await self._store.read(lambda: client.hset(key, origin, msgspec.json.encode(names)))
        else:
            await self._store.read(lambda: client.hdel(key, origin))

    async def stop_backfill(self, name: str, tenant: str) -> bool:
        shard, plan = self.shard_of(name, tenant), plan_name(tenant, name)
        return await self._store.backfill(shard, self._caller, plan, 0, 0, 0) == 1

    # -- reading

    async def view(self, name: str, tenant: str) -> PlanView:
        check_schedule_name(name)
        (view,) = await self._views(self.shard_of(name, tenant), [plan_name(tenant, name)]) or [None]
        if view is None:
            raise _unknown(name, tenant)
        return view

    async def page(self, tenant: str | None = None, after: str = "", limit: int = 50) -> list[PlanView]:
        """Schedules in the order of their names; `after`: the `cursor` of the last one of the page before."""
        store = self._store
        if limit < 1:
            raise InvalidSchedule(f"limit is 1 or more, not {limit}")
        low, high = plan_range(tenant) if tenant is not None else ("", "")
        begin = f"({low}{after.removeprefix(low)}" if after else f"[{low}" if low else "-"
        names: list[tuple[str, int]] = []
        for shard, keys in enumerate(store.keys.shards):
            if tenant not in (None, DEFAULT_TENANT) and shard != store.keys.shard_of(str(tenant), ""):
                continue
            found = await store.read(
                lambda k=keys: store.client.zrangebylex(k["roster"], begin, f"({high}" if high else "+", 0, limit)  # type: ignore[misc]
            )
            names += [(one.decode(), shard) for one in found]
        names = sorted(names)[:limit]
        views: dict[str, PlanView | None] = {}
        for shard in {shard for _, shard in names}:
            mine = [name for name, at in names if at == shard]
            views |= dict(zip(mine, await self._views(shard, mine), strict=True))
        return [view for name, _ in names if (view := views[name]) is not None]

    async def count(self, tenant: str, without: int | None = None) -> int:
        """How many schedules a tenant has."""
        low, high = plan_range(tenant)
        total = 0
        for shard, keys in enumerate(self._store.keys.shards):
            if shard != without:
                total += await self._store.read(
                    lambda k=keys: self._store.client.zlexcount(k["roster"], f"[{low}", f"({high}")  # type: ignore[misc]
                )
        return total

    async def runs(self, name: str, tenant: str, limit: int) -> list[PlanRun]:
        check_schedule_name(name)
        if limit < 1:
            raise InvalidSchedule(f"limit is 1 or more, not {limit}")
        shard = self.shard_of(name, tenant)
        key = self._store.keys.shards[shard].history(plan_name(tenant, name))
        entries = await self._store.read(lambda: self._store.client.xrevrange(key, count=limit))
        if not entries:
            await self._find(name, tenant)
        return [plan_run(job_prefix(tenant, name), fields) for _, fields in entries]

    async def preview(self, name: str, tenant: str, count: int) -> list[datetime]:
        body, standing = await self._find(name, tenant)
        now = from_ms(await self._store.clock_ms())
        if standing.mode is Mode.ENDED:
            return []
        table = Timetable(body)
        if table.max_runs is not None:
            count = min(count, table.max_runs - standing.made)
        return table.rule.preview(now, max(0, count))

    async def _views(self, shard: int, names: Sequence[str]) -> Sequence[PlanView | None]:
        if not names:
            return []
        keys, client, read = self._store.keys.shards[shard], self._store.client, self._store.read
        bodies = await read(lambda: client.hmget(keys["plan"], list(names)))
        states = await read(lambda: client.hmget(keys["planned"], list(names)))
        backfills = await read(lambda: client.hmget(keys["planned"], [name + "!" for name in names]))
        looks = await read(lambda: client.zmscore(keys["plans"], list(names)))
        rows = zip(names, bodies, states, backfills, looks, strict=True)
        return [None if row[1] is None and row[2] is None else view_of(*row) for row in rows]

    async def _read(self, name: str, tenant: str) -> tuple[PlanBody | None, Standing | None]:
        check_schedule_name(name)
        keys, plan = self._store.keys.shards[self.shard_of(name, tenant)], plan_name(tenant, name)
        client, read = self._store.client, self._store.read
        state = await read(lambda: client.hget(keys["planned"], plan))
        body = await read(lambda: client.hget(keys["plan"], plan))
        return _readable(decode_plan, body), _readable(Standing.parse, state)

    async def _find(self, name: str, tenant: str) -> tuple[PlanBody, Standing]:
        body, standing = await self._read(name, tenant)
        if body is None and standing is None:
            raise _unknown(name, tenant)
        if body is None or standing is None:
            raise StoreError(
                f"schedule {name!r} of tenant {tenant!r} is broken: `redisched doctor` says how; replace or delete it"
            )
        return body, standing


T = TypeVar("T")


def _readable(read: Callable[[bytes], T], packed: bytes | None) -> T | None:
    """What is broken counts as missing: it can be replaced."""
    try:
        return read(packed) if packed else None
    except PayloadUndecodable:
        return None


def _unknown(name: str, tenant: str) -> UnknownSchedule:
    return UnknownSchedule(
        f"tenant {tenant!r} has no schedule {name!r}: see `redisched schedules list --tenant {tenant}`"
    )
