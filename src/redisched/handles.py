"""`Job`: what an enqueue gives back. Asks the store about one job; keeps nothing itself.

Made by `client.py` and by the inspector's callers; never changes a job except by `cancel()`.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, Generic, TypeVar, cast

import msgspec

from redisched import codec
from redisched.clock import mono_s
from redisched.errors import JobCancelled, JobFailed, PayloadUndecodable, StoreError, UnknownJob
from redisched.inspector import Inspector
from redisched.model import JobView, Run
from redisched.registry import Handler
from redisched.state import State
from redisched.store import Store

R_co = TypeVar("R_co", covariant=True)

CANCEL_REMEMBERED_MS = 3_600_000
CANCEL_TRIES = 50  # a job that moves between every look and every try, so often, is in no place
_FIRST_LOOK_S = 0.002
_LONGEST_PAUSE_S = 0.05


class Job(Generic[R_co]):
    """One job. `created` tells whether this enqueue made it or found it alive under its key."""

    __slots__ = ("_handler", "_store", "created", "id", "name", "shard", "tenant")

    def __init__(
        self,
        store: Store,
        job_id: str,
        tenant: str,
        name: str,
        handler: Handler[..., R_co] | None,
        created: bool = True,
    ) -> None:
        self._store = store
        self._handler = handler
        self.id = job_id
        self.tenant = tenant
        self.name = name
        self.created = created
        self.shard = store.keys.shard_of(tenant, job_id)

    def __repr__(self) -> str:
        return f"<Job {self.id} {self.name} of {self.tenant}>"

    async def view(self) -> JobView:
        """All that is known of it now."""
        return await Inspector(self._store).job(self.id, self.tenant)

    async def status(self) -> State:
        """Where it is: waiting, ready, running, dead or gone (finished, cancelled or purged)."""
        return (await self.view()).state

    async def runs(self) -> list[Run]:
        """Its attempts that ended, oldest first, as far as they are remembered."""
        return list((await self.view()).runs)

    async def cancel(self) -> bool:
        """Stops it wherever it is; a running handler learns it at its next renewal. False: it had ended already."""
        inspector = Inspector(self._store)
        lease = ""
        for _ in range(CANCEL_TRIES):
            word = await self._store.cancel(self.shard, self.id, lease, CANCEL_REMEMBERED_MS)
            if word in ("cancelled", "again"):
                return True
            if word in ("gone", "dead"):
                return False
            if word == "unreadable":
                break
            # It runs (or just moved): find its lease and try again.
            lease = await inspector.lease_of(self.shard, self.id) or ""
        raise StoreError(
            f"job {self.id} cannot be cancelled: its record is broken or in no place; run `redisched doctor`"
        )

    async def result(self, timeout: float | timedelta | None = None) -> R_co:
        """What the handler returned, once it has. Raises JobFailed, JobCancelled, or TimeoutError.

        A result that is None need not be kept: a job that is gone and left nothing has returned None.
        """
        limit_s = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        give_up = None if limit_s is None else mono_s() + limit_s
        pause_s = _FIRST_LOOK_S
        while True:
            word, raw, _ = await self._store.locate(self.shard, self.id)
            if word == "kept":
                return self._open_result(raw)
            if word == "gone":
                return self._nothing_kept()
            if word == "unreadable":
                raise PayloadUndecodable(f"the record of job {self.id} is broken; run `redisched doctor`")
            if word == "dead":
                runs = codec.decode_runs(codec.open_record(raw).runs)
                raise JobFailed(self.id, last_line(runs[-1].error) if runs else "unknown")
            if give_up is not None and mono_s() >= give_up:
                raise TimeoutError(f"job {self.id} is still {word} after {limit_s:g} s")
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 1.5, _LONGEST_PAUSE_S)

    def _nothing_kept(self) -> R_co:
        """Gone, and left nothing: it returned None, if it can have."""
        wanted = self._handler.result_type if self._handler else Any
        keeps = self._handler is None or self._handler.options.keep_ms != 0
        if keeps and (self._handler is not None or self.created) and _may_be_none(wanted):
            return None  # type: ignore[return-value]
        raise UnknownJob(
            f"job {self.id} is gone and left no result: it ended longer ago than results are kept "
            f"(see keep_result of @sched.job), was purged, or never was"
        )

    def _open_result(self, raw: bytes) -> R_co:
        if raw == codec.CANCELLED:
            raise JobCancelled(f"job {self.id} was cancelled")
        kept = codec.decode_result(raw)
        if kept.error:
            raise PayloadUndecodable(f"job {self.id} is done, but {kept.error}")
        wanted = self._handler.result_type if self._handler else Any
        try:
            return cast("R_co", msgspec.msgpack.decode(kept.value, type=Any if wanted is None else wanted))
        except msgspec.MsgspecError as error:
            raise PayloadUndecodable(
                f"job {self.id} is done, but its result is not what {self.name} declares: {error}"
            ) from error


def _may_be_none(wanted: Any) -> bool:
    try:
        msgspec.convert(None, wanted)
    except (msgspec.ValidationError, TypeError):
        return False
    return True


def last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else ""
