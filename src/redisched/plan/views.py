"""Stored bytes of a schedule to what people see of it. Pure."""

from __future__ import annotations

from typing import Any, Literal

from redisched import codec
from redisched.clock import from_ms
from redisched.errors import InvalidSchedule, PayloadUndecodable
from redisched.keys import decode_tenant
from redisched.model import BackfillView, PlanRun, PlanView
from redisched.plan.body import job_prefix, open_plan
from redisched.plan.standing import Mode, Standing

_WAITS = {
    Mode.HELD: "an occurrence before it still lives",
    Mode.TURN: "its turn in a catch-up",
    Mode.RUNNING: "the end of its run",
}


def view_of(name: str, body: bytes | None, state: bytes | None, backfill: bytes | None, look: float | None) -> PlanView:
    """A schedule that is broken is shown as such: a list must not fail for it."""
    try:
        return _view(name, body or b"", state or b"", backfill, look)
    except (PayloadUndecodable, InvalidSchedule) as error:
        tenant, _, schedule = name.partition("/")
        tenant = tenant if tenant.startswith("!") else decode_tenant(tenant)
        return PlanView(schedule, tenant, "broken", 0, "?", {}, cursor=name, waits_for=str(error))


def _view(name: str, packed: bytes, state: bytes, backfill: bytes | None, look: float | None) -> PlanView:
    table, standing = open_plan(packed), Standing.parse(state)
    body = table.body
    words: Literal["active", "paused", "ended"] = "active"
    if standing.mode is Mode.PAUSED:
        words = "paused"
    elif standing.mode is Mode.ENDED or (table.max_runs is not None and standing.made >= table.max_runs):
        words = "ended"
    rule = {key: value for key, value in codec.decode_any(body.rule).items() if key != "anchored"}
    shows_next = standing.cursor_ms and words != "ended" and standing.mode is not Mode.RAN
    return PlanView(
        name=body.schedule,
        cursor=name,
        tenant=body.tenant,
        state=words,
        version=standing.version,
        call=body.call,
        rule=rule,
        words=table.rule.describe(),
        waits_for=_WAITS.get(standing.mode, ""),
        next_at=from_ms(standing.cursor_ms) if shows_next else None,
        looks_at=from_ms(int(look)) if look is not None else None,
        args=codec.decode_any(body.args),
        misfire=body.misfire,
        grace=_delta(body.grace_ms),
        overlap=body.overlap,
        jitter=_delta(body.jitter_ms),
        idempotency_key=body.key,
        priority=body.priority,  # type: ignore[arg-type]
        made=standing.made,
        missed=standing.missed,
        skipped=standing.skipped,
        living=tuple(job_prefix(body.tenant, body.schedule) + one for one in standing.occurrences),
        backfill=_backfill(backfill) if backfill else None,
        origin=body.origin,
        note=body.note,
        created_at=from_ms(body.created_ms),
        changed_at=from_ms(body.changed_ms),
    )


def _delta(ms: int) -> Any:
    return from_ms(ms) - from_ms(0)


def _backfill(state: bytes) -> BackfillView:
    standing = Standing.parse(state)
    last_ms, total = standing.range
    return BackfillView(standing.made, total, from_ms(standing.cursor_ms), from_ms(last_ms))


def plan_run(prefix: str, fields: dict[bytes, bytes]) -> PlanRun:
    """An entry of a schedule's history."""
    occurrence = fields[b"o"].decode()
    (run,) = codec.decode_runs(fields[b"r"])
    return PlanRun(
        job_id=prefix + occurrence,
        nominal_at=from_ms(int(occurrence.partition("!")[0])),
        attempt=run.attempt,
        worker=run.worker,
        started_at=run.started_at,
        ended_at=run.ended_at,
        outcome=run.outcome,
        error=run.error,
        result_bytes=int(fields.get(b"s", b"0")),
    )
