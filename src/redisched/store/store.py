"""The store: one method a script, and nothing else that changes Redis.

Called by clients, workers and schedulers; knows keys, scripts and connections, never handlers or
cron. Every call rides through a lost connection, a failover or a flushed script cache until
`timeout_s` has passed: that is safe because every script may be sent twice. Reading for people
(stats, lists, doctor) is `inspector.py`'s work, through `read()`.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from redis import exceptions as rex

from redisched.clock import MovableClock, mono_s
from redisched.embedded import EmbeddedServer
from redisched.errors import LayoutMismatch, StoreError, StoreFull, StoreUnavailable
from redisched.keys import LAYOUT_VERSION, Keys, ShardKeys, meta_key
from redisched.model import Claimed, Recount
from redisched.settings import DEFAULT_SHARDS, StoreSettings
from redisched.store.caller import Caller
from redisched.store.connect import Client, connect, connect_memory, hide_password, is_cluster, together
from redisched.store.scripts import Script, load_scripts

log = logging.getLogger("redisched.store")
T = TypeVar("T")

ANNOUNCE_S = 5.0
MAX_CALLS = 32  # at once, and so connections

# What passes by itself: a lost connection, a failover, a server that is still loading its data.
PASSING = (
    rex.ConnectionError,
    rex.TimeoutError,
    rex.BusyLoadingError,
    rex.ReadOnlyError,
    rex.ClusterDownError,
    rex.TryAgainError,
    rex.MasterDownError,
    asyncio.TimeoutError,
    OSError,
)


class Store:
    def __init__(self, settings: StoreSettings, clock: MovableClock | None = None) -> None:
        self.settings = settings
        self.clock = clock
        self.scripts = load_scripts()
        self.is_memory = (settings.address or "").startswith("memory://")
        self.is_cluster = False
        self.url = ""
        self._client: Client = None
        self._embedded: EmbeddedServer | None = None
        self._keys: Keys | None = None
        self._away_since: float | None = None

    # -- opening and closing

    async def open(self) -> None:
        address = self.settings.address
        if address is None:
            self._embedded = EmbeddedServer()
            # starting waits for a server to load its data; do not hold up the loop meanwhile
            address = await asyncio.to_thread(self._embedded.start)
        if self.is_memory and self.clock is None:
            self.clock = MovableClock()
        # A call holds a connection. Without a bound, a thousand waiters would open a thousand of them at once.
        self._gate = asyncio.Semaphore(MAX_CALLS)
        try:
            self.url = address
            self._client = connect_memory() if self.is_memory else connect(address)
            self.is_cluster = is_cluster(self._client)
            self._keys = Keys(self.settings.namespace, await self._agree_on_layout())
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None
        if self._embedded is not None:
            await asyncio.to_thread(self._embedded.stop)
            self._embedded = None

    @property
    def is_open(self) -> bool:
        return self._client is not None

    @property
    def keys(self) -> Keys:
        assert self._keys is not None, "the store is not open"
        return self._keys

    @property
    def shards(self) -> int:
        return len(self.keys.shards)

    @property
    def client(self) -> Client:
        """The connection itself, for readers."""
        return self._client

    @property
    def embedded_pid(self) -> int | None:
        return self._embedded.pid if self._embedded else None

    def now_ms(self) -> int:
        """What scripts get as `now_ms`: 0, so that Redis' clock decides, or the test's clock."""
        return self.clock.now_ms() if self.clock is not None else 0

    def caller(self) -> Caller:
        return Caller(self.shards)

    async def _agree_on_layout(self) -> int:
        """The shard count of the namespace. The first to come decides it, for ever (until a reshard)."""
        meta = meta_key(self.settings.namespace)
        wanted = self.settings.shards or DEFAULT_SHARDS

        async def agree() -> dict[bytes, bytes]:
            await self._client.hsetnx(meta, "layout", LAYOUT_VERSION)
            await self._client.hsetnx(meta, "shards", wanted)
            found: dict[bytes, bytes] = await self._client.hgetall(meta)
            return found

        found = await self.read(agree)
        layout, shards = int(found[b"layout"]), int(found[b"shards"])
        place = f"namespace {self.settings.namespace!r} at {hide_password(self.url)}"
        if layout != LAYOUT_VERSION:
            raise LayoutMismatch(
                f"{place} has layout {layout}, this version of redisched writes {LAYOUT_VERSION}: "
                f"use the version that made it, or another namespace"
            )
        if self.settings.shards not in (None, shards):
            raise LayoutMismatch(
                f"{place} was created with {shards} shards, not {self.settings.shards}: "
                f"leave shards= out, or use another namespace"
            )
        return shards

    # -- calling

    async def read(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Runs a question (or a call that may be repeated) until it is answered or `timeout_s` has passed."""
        give_up = mono_s() + self.settings.timeout_s
        pause_s = 0.01
        while True:
            try:
                async with self._gate:
                    answer = await ask()
                self.note_back()
                return answer
            except PASSING as error:
                if isinstance(error, rex.AuthenticationError | rex.NoPermissionError):
                    raise StoreError(f"{hide_password(self.url)} refused this user: {error}") from error
                if mono_s() + pause_s > give_up:
                    raise StoreUnavailable(
                        f"{hide_password(self.url)} did not answer for {self.settings.timeout_s:g} s: {error}"
                    ) from error
                self.note_away(error)
            except rex.ResponseError as error:
                if isinstance(error, rex.OutOfMemoryError) or str(error).startswith("OOM"):
                    raise StoreFull(
                        "the server reached its memory limit and took nothing; "
                        "let workers drain it, raise maxmemory, or enqueue less"
                    ) from error
                raise StoreError(str(error)) from error
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(pause_s * 2, 0.5)

    def note_away(self, error: BaseException) -> None:
        """One line when an outage begins and one when it ends, however many calls wait meanwhile."""
        if self._away_since is None:
            self._away_since = mono_s()
            log.warning("store unavailable, trying again", extra={"error": repr(error)})

    def note_back(self) -> None:
        if self._away_since is not None:
            log.warning("store is back", extra={"after_s": round(mono_s() - self._away_since, 3)})
            self._away_since = None

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
            answer, confirmed = await together(self._client, command[3], [command, wait])
            return answer, int(confirmed)

        return await self.read(ask)

    def _command(self, script: Script, keys: ShardKeys, args: Sequence[Any], caller: Caller | None) -> list[Any]:
        named = [keys.call(caller.name) if k == "call" and caller else keys[k] for k in script.keys]
        return ["EVALSHA", script.sha, len(named), *named, *args]

    async def _evalsha(self, script: Script, command: list[Any]) -> list[Any]:
        try:
            answer: list[Any] = await self._client.execute_command(*command)
        except rex.NoScriptError:
            # A new server, a failover or SCRIPT FLUSH: send the text, whose name is its content.
            answer = await self._client.execute_command("EVAL", script.text, *command[2:])
        return answer

    async def _load(self, script: Script) -> None:
        await self._client.script_load(script.text)

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
        self, shard: int, caller: Caller, members: list[str], ids: list[str], tenants: list[str], results: list[Any]
    ) -> list[int]:
        """`results`: index, ms to keep and bytes of each result that is kept. Answers who was stale."""
        async with caller.turn(shard) as seq:
            _, *stale = await self.call(
                "complete", shard, self.now_ms(), seq, len(ids), *members, *ids, *tenants, *results, caller=caller
            )
        return stale

    async def retry(self, shard: int, caller: Caller, failed: list[Any]) -> list[int]:
        """`failed`: lease, id, counted, most attempts, delay in ms, run of each. Answers who was stale."""
        async with caller.turn(shard) as seq:
            _, *stale = await self.call("retry", shard, self.now_ms(), seq, *failed, caller=caller)
        return stale

    async def bury(self, shard: int, caller: Caller, failed: list[Any]) -> list[int]:
        """`failed`: lease, id, reason, run of each. Answers who was stale."""
        async with caller.turn(shard) as seq:
            _, *stale = await self.call("bury", shard, seq, *failed, caller=caller)
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

    async def recover(self, shard: int, limit: int) -> tuple[int, int, int]:
        ended, buried, next_ms = await self.call("recover", shard, self.now_ms(), limit)
        return ended, buried, next_ms

    async def cancel(self, shard: int, job_id: str, lease: str, keep_ms: int) -> str:
        (word,) = await self.call("cancel", shard, job_id, lease, keep_ms, self.lane_scan)
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
        await self.call("stale", shard, *late)

    async def progress(self, shard: int, member: str, job_id: str, note: str, keep_ms: int) -> bool:
        """False: the lease is lost."""
        (word,) = await self.call("progress", shard, member, job_id, note, keep_ms)
        return bool(word == b"noted")

    async def reach(self, shard: int) -> None:
        """Returns when the shard's server answers."""
        await self.read(lambda: self._client.exists(self.keys.shards[shard]["fence"]))

    async def is_idle(self) -> bool:
        """Nothing is ready, running or due in any shard."""
        for shard in range(self.shards):
            (idle,) = await self.call("idle", shard, self.now_ms())
            if not idle:
                return False
        return True

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
        now, _ = await self.read(self._client.time)
        until = int(now) * 1000 + round(seconds * 1000)
        await self.read(lambda: self._client.zadd(self.keys.members, {member: until}))

    async def keep_announcing(self, member: str) -> None:
        """Until cancelled."""
        while True:
            try:
                await self.announce(member, 3 * ANNOUNCE_S)
            except (StoreUnavailable, StoreError) as error:
                log.warning("cannot announce this process", extra={"error": str(error)})
            await asyncio.sleep(ANNOUNCE_S)

    async def leave(self, member: str) -> None:
        await self.read(lambda: self._client.zrem(self.keys.members, member))

    async def forget_members(self) -> None:
        now, _ = await self.read(self._client.time)
        await self.read(lambda: self._client.zremrangebyscore(self.keys.members, "-inf", int(now) * 1000))

    @property
    def lane_scan(self) -> int:
        """How many entries of a lane to look through for one job. Twice the bound: another process may allow more."""
        return 2 * self.settings.lane_bound
