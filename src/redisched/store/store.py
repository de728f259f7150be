"""The store: one method a script, and nothing else that changes Redis.

Called by clients, workers and schedulers; knows keys, scripts and connections, never handlers or
cron. Calls ride through outages (see `link.py`) and a flushed script cache. Reading for people
(stats, lists, doctor) is `inspector.py`'s work, through `read()`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from redis import exceptions as rex

from redisched.errors import StoreError, StoreUnavailable
from redisched.keys import ShardKeys
from redisched.model import Claimed, Recount
from redisched.store.caller import Caller
from redisched.store.connect import together
from redisched.store.plans import PlanCalls
from redisched.store.scripts import Script

log = logging.getLogger("redisched.store")

ANNOUNCE_S = 5.0


class Store(PlanCalls):
    async def call(self, name: str, shard: int, *args: Any, caller: Caller | None = None) -> list[Any]:
        """Runs one script on one shard."""
        script = self.scripts[name]
        command = self._command(script, self.keys.shards[shard], args, caller)
        return await self.read(lambda: self._evalsha(script, command))

    async def call_waiting(
        self, name: str, shard: int, args: Sequence[Any], caller: Caller, replicas: int, wait_ms: int
    ) -> tuple[list[Any], int]:
        """The same, and how many replicas had it after at most `wait_ms`. WAIT must follow on the same connection."""
        script = self.scripts[name]
        command = self._command(script, self.keys.shards[shard], args, caller)

        async def ask() -> tuple[list[Any], int]:
            await self._load(script)
            wait = ["WAIT", replicas, wait_ms]
            answer, confirmed = await together(self.client, command[3], [command, wait])
            return answer, int(confirmed)

        return await self.read(ask)

    def _command(self, script: Script, keys: ShardKeys, args: Sequence[Any], caller: Caller | None) -> list[Any]:
        named = [keys.call(caller.name) if k == "call" and caller else keys[k] for k in script.keys]
        return ["EVALSHA", script.sha, len(named), *named, *args]

    async def _evalsha(self, script: Script, command: list[Any]) -> list[Any]:
        try:
            answer: list[Any] = await self.client.execute_command(*command)
        except rex.NoScriptError:
            # A new server, a failover or SCRIPT FLUSH: send the text, whose name is its content.
            answer = await self.client.execute_command("EVAL", script.text, *command[2:])
        return answer

    async def _load(self, script: Script) -> None:
        await self.client.script_load(script.text)

    # -- one method a script

    async def enqueue(self, shard: int, seq: int, caller: Caller, fresh: list[Any]) -> list[int]:
        """`fresh`: id, lane, time, record of each job. Answers the count stored and who lived already."""
        return await self.call("enqueue", shard, self.now_ms(), seq, self.settings.lane_bound, *fresh, caller=caller)

    async def enqueue_replicated(
        self, shard: int, seq: int, caller: Caller, fresh: list[Any], replicas: int, wait_ms: int
    ) -> tuple[list[int], int]:
        """The same, and how many replicas had it after at most `wait_ms`."""
        args = (self.now_ms(), seq, self.settings.lane_bound, *fresh)
        return await self.call_waiting("enqueue", shard, args, caller, replicas, wait_ms)

    async def promote(self, shard: int, limit: int) -> tuple[int, int]:
        moved, next_ms = await self.call("promote", shard, self.now_ms(), limit, self.settings.lane_bound)
        return moved, next_ms

    async def claim(self, shard: int, limit: int, lease_ms: int, worker: str) -> tuple[int, list[Claimed]]:
        """The tenants left with ready work, and the jobs."""
        left, fence, *pairs = await self.call("claim", shard, self.now_ms(), limit, lease_ms, worker)
        claimed = []
        for id_bytes, record in zip(pairs[::2], pairs[1::2], strict=True):
            job_id = id_bytes.decode()
            claimed.append(Claimed(shard, job_id, f"{job_id}#{fence}@{worker}", fence, record))
            fence += 1
        return left, claimed

    async def complete(
        self,
        shard: int,
        caller: Caller,
        members: list[str],
        ids: list[str],
        tenants: list[str],
        results: list[Any],
        occurrences: list[Any],
    ) -> list[int]:
        """`results`: index, ms to keep and bytes of each result that is kept. `occurrences`: index, run and size of
        the result of each job that a schedule made. Answers who was stale."""
        kept = len(results) // 3
        async with caller.turn(shard) as seq:
            args = (self.now_ms(), seq, len(ids), kept, *members, *ids, *tenants, *results, *occurrences)
            _, *stale = await self.call("complete", shard, *args, caller=caller)
        return stale

    async def retry(self, shard: int, caller: Caller, failed: list[Any]) -> list[int]:
        """`failed`: lease, id, counted, most attempts, delay in ms, run of each. Answers who was stale."""
        async with caller.turn(shard) as seq:
            _, *stale = await self.call("retry", shard, self.now_ms(), seq, *failed, caller=caller)
        return stale

    async def bury(self, shard: int, caller: Caller, failed: list[Any]) -> list[int]:
        """`failed`: lease, id, reason, run of each. Answers who was stale."""
        async with caller.turn(shard) as seq:
            _, *stale = await self.call("bury", shard, self.now_ms(), seq, *failed, caller=caller)
        return stale

    async def release(self, shard: int, caller: Caller, unknown_limit: int, held: list[Any]) -> list[int]:
        """`held`: lease, id, why, delay in ms of each. Answers who was stale."""
        async with caller.turn(shard) as seq:
            _, *stale = await self.call("release", shard, self.now_ms(), seq, unknown_limit, *held, caller=caller)
        return stale

    async def renew(self, shard: int, lease_ms: int, members: list[str]) -> list[int]:
        """Answers which leases are lost."""
        _, *lost = await self.call("renew", shard, self.now_ms(), lease_ms, *members)
        return lost

    async def recover(self, shard: int, limit: int, gap_ms: int = 0, amnesty_ms: int = 0) -> tuple[int, int, int]:
        """Leases that ended, of them buried, and ms until the next look. Nothing for a while after an outage."""
        ended, buried, next_ms = await self.call("recover", shard, self.now_ms(), limit, gap_ms, amnesty_ms)
        return ended, buried, next_ms

    async def cancel(self, shard: int, job_id: str, lease: str, keep_ms: int) -> str:
        (word,) = await self.call("cancel", shard, self.now_ms(), job_id, lease, keep_ms, self.lane_scan)
        return str(word, "ascii")

    async def locate(self, shard: int, job_id: str) -> tuple[str, bytes, bytes]:
        word, raw, place = await self.call("locate", shard, job_id, self.lane_scan)
        return str(word, "ascii"), raw, place

    async def replay(self, shard: int, ids: list[str]) -> int:
        answer = await self.call("replay", shard, self.now_ms(), *ids)
        return int(answer[0])

    async def purge(self, shard: int, ids: list[str]) -> int:
        answer = await self.call("purge", shard, self.now_ms(), len(ids), 0, 0, *ids)
        return int(answer[0])

    async def trim(self, shard: int, limit: int, kept: int, age_ms: int) -> int:
        """Purges dead letters past the kept count or age."""
        answer = await self.call("purge", shard, self.now_ms(), limit, kept, age_ms)
        return int(answer[0])

    async def stale(self, shard: int, late: list[Any]) -> None:
        """`late`: id and run of each that came back too late."""
        await self.call("stale", shard, self.now_ms(), *late)

    async def progress(self, shard: int, member: str, job_id: str, note: bytes, keep_ms: int) -> bool:
        """False: the lease is lost."""
        (word,) = await self.call("progress", shard, member, job_id, note, keep_ms)
        return bool(word == b"noted")

    async def reach(self, shard: int) -> None:
        """Returns when the shard's server answers."""
        await self.read(lambda: self.client.exists(self.keys.shards[shard]["fence"]))

    async def is_idle(self) -> bool:
        """Nothing is ready, running or due in any shard.

        Shards are asked one after the other, and a running job may enqueue to one that was asked already: so
        all of them twice, and nothing may have been enqueued meanwhile.
        """
        before = await self._enqueued()
        for shard in (*range(self.shards), *range(self.shards)):
            (idle,) = await self.call("idle", shard, self.now_ms())
            if not idle:
                return False
        return await self._enqueued() == before

    async def _enqueued(self) -> list[Any]:
        return [await self.read(lambda k=k: self.client.hget(k["totals"], "enqueued")) for k in self.keys.shards]  # type: ignore[misc]

    async def repair(
        self, shard: int, limit: int, longest_ms: int, suspects: Sequence[Any], *, fix: bool
    ) -> list[tuple[bytes, str, str]]:
        """`suspects`: id, kind and where of each place seen. Answers id, word and places of each job."""
        args = (self.now_ms(), int(fix), limit, self.lane_scan, longest_ms, *suspects)
        answer = await self.call("repair", shard, *args)
        rows = zip(answer[::3], answer[1::3], answer[2::3], strict=True)
        return [(i, str(word, "ascii"), str(places, "utf-8", "backslashreplace")) for i, word, places in rows]

    async def recount(self, shard: int, limit: int, tenants: Sequence[str], *, fix: bool) -> list[Recount]:
        """Counts and marks of encoded tenants, as they are and as they were kept."""
        answer = await self.call("recount", shard, int(fix), limit, *tenants)
        return [
            Recount(
                str(row[0], "utf-8", "backslashreplace"),
                (row[1], row[2], row[3]),
                (row[4], row[5], row[6]),
                str(row[7], "ascii"),
                str(row[8], "ascii"),
                row[9],
            )
            for row in (answer[n : n + 10] for n in range(0, len(answer), 10))
        ]

    # -- members: who is alive, for people to see; nothing depends on it

    async def announce(self, member: str, seconds: float) -> None:
        """This process lives for at least so long."""
        now, _ = await self.read(self.client.time)
        until = int(now) * 1000 + round(seconds * 1000)
        await self.read(lambda: self.client.zadd(self.keys.members, {member: until}))

    async def keep_announcing(self, member: str) -> None:
        """Until cancelled."""
        while True:
            try:
                await self.announce(member, 3 * ANNOUNCE_S)
            except (StoreUnavailable, StoreError) as error:
                log.warning("cannot announce this process", extra={"error": str(error)})
            await asyncio.sleep(ANNOUNCE_S)

    async def leave(self, member: str) -> None:
        await self.read(lambda: self.client.zrem(self.keys.members, member))

    async def forget_members(self) -> None:
        now, _ = await self.read(self.client.time)
        await self.read(lambda: self.client.zremrangebyscore(self.keys.members, "-inf", int(now) * 1000))

    @property
    def lane_scan(self) -> int:
        """How many entries of a lane to look through for one job. Twice the bound: another process may allow more."""
        return 2 * self.settings.lane_bound
