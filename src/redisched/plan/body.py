"""What is stored of a schedule, and the timetable that is made from it. Pure.

The rule is stored as it was given (expression and zone, never an offset) and parsed when it is
needed; parsed rules are remembered, because thousands of schedules share a few expressions.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final

import msgspec

from redisched import codec
from redisched.clock import from_ms, to_ms
from redisched.cron import Every, Rule, schedule_from_dict
from redisched.cron.rule import seconds
from redisched.cron.zones import zone
from redisched.errors import ConfigError, InvalidSchedule, PayloadUndecodable
from redisched.keys import DEFAULT_TENANT, encode_tenant, lane_of
from redisched.plan.templates import check_template, render
from redisched.policy import Misfire, Overlap

_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
KEYS_COMPARED: Final = 100
_TENANT_CHARS: Final = 64  # what a lease's member has room for


class PlanBody(msgspec.Struct, array_like=True, frozen=True):
    """New fields go to the end, with a default: what is stored stays readable."""

    schedule: str
    tenant: str
    rule: msgspec.Raw
    call: str
    args: msgspec.Raw
    misfire: str = "once"
    grace_ms: int = 3_600_000
    overlap: str = "skip"
    jitter_ms: int = 0
    key: str | None = None
    priority: str = "normal"
    max_attempts: int = 5
    timeout_ms: int | None = None
    keep_ms: int | None = None
    origin: str = ""  # the application that declares it in code
    created_ms: int = 0
    changed_ms: int = 0
    note: str = ""  # why it is paused

    def says_the_same(self, other: PlanBody) -> bool:
        """Whether the two differ in nothing that somebody asked for."""
        return _asked_for(self) == _asked_for(other)


def _asked_for(body: PlanBody) -> PlanBody:
    # An interval without an anchor gets the time of its registration as one: that is not a difference.
    return msgspec.structs.replace(body, rule=_rule_asked_for(bytes(body.rule)), created_ms=0, changed_ms=0, note="")


def _rule_asked_for(packed: bytes) -> msgspec.Raw:
    stored = codec.decode_any(packed)
    if isinstance(stored, dict) and stored.pop("anchored", None):
        stored.pop("anchor", None)
    return codec.raw(codec.encode(sorted(stored.items()) if isinstance(stored, dict) else stored))


_decoder = msgspec.msgpack.Decoder(PlanBody)


def encode_plan(body: PlanBody) -> bytes:
    return codec.encode(body)


def decode_plan(packed: bytes) -> PlanBody:
    try:
        return _decoder.decode(packed)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise PayloadUndecodable(f"this is no schedule of redisched: {packed[:60]!r}: {error}") from error


def pack_rule(rule: Rule, now: datetime) -> msgspec.Raw:
    """A rule as it is stored. An interval that names no phase counts from its registration."""
    stored = rule.to_dict()
    if isinstance(rule, Every) and (anchored := rule.anchored(now)) is not rule:
        stored = anchored.to_dict() | {"anchored": True}
    return codec.raw(codec.encode(stored))


def check_schedule_name(name: str) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidSchedule(f"a schedule's name is 1 to 128 of A-Z a-z 0-9 _ . : - , not {name!r:.80}")


@lru_cache(maxsize=65_536)
def _tenant_part(tenant: str) -> str:
    encoded = encode_tenant(tenant)
    if len(encoded) <= _TENANT_CHARS:
        return encoded
    return "!" + blake2b(encoded.encode(), digest_size=12).hexdigest()


def plan_name(tenant: str, schedule: str) -> str:
    """`<tenant>/<schedule>`, as the store knows it."""
    return f"{_tenant_part(tenant)}/{schedule}"


def plan_range(tenant: str) -> tuple[str, str]:
    """What all names of a tenant's plans lie between."""
    part = _tenant_part(tenant)
    return f"{part}/", f"{part}0"


def job_prefix(tenant: str, schedule: str) -> str:
    """What the ids of a schedule's occurrences begin with: `<schedule>@`, or `<tenant>/<schedule>@`."""
    return f"{schedule}@" if tenant == DEFAULT_TENANT else f"{plan_name(tenant, schedule)}@"


def local_time(rule: Rule, instant: datetime) -> datetime:
    """An instant as the clocks of the rule's zone show it."""
    name = getattr(rule, "tz", "UTC")
    offset_s = 0 if name == "UTC" else zone(name).offset_at(seconds(instant))
    return instant.astimezone(timezone(timedelta(seconds=offset_s)))


class Timetable:
    """A schedule, ready to be asked: its rule parsed, its policies opened."""

    __slots__ = ("body", "grace_ms", "jitter_ms", "lane", "max_runs", "misfire", "name", "overlap", "rule")

    def __init__(self, body: PlanBody) -> None:
        self.body = body
        self.rule = rule_of(bytes(body.rule))
        self.misfire = _misfire_of(body.misfire)
        self.overlap = _overlap_of(body.overlap)
        self.grace_ms = body.grace_ms
        self.jitter_ms = body.jitter_ms
        self.max_runs = self.rule.max_runs
        self.lane = lane_of(body.tenant, body.priority)
        self.name = plan_name(body.tenant, body.schedule)

    def next_ms(self, after_ms: int) -> int:
        """The first nominal time later than `after_ms`; 0: there is none."""
        return _next_ms(bytes(self.body.rule), after_ms)

    def look_ms(self, nominal_ms: int) -> int:
        """When an occurrence is to run: its nominal time and its share of the jitter, which depends on nothing else."""
        if not self.jitter_ms:
            return nominal_ms
        following = self.next_ms(nominal_ms)
        width = min(self.jitter_ms + 1, following - nominal_ms) if following else self.jitter_ms + 1
        digest = blake2b(f"{self.name}@{nominal_ms}".encode(), digest_size=8).digest()
        return nominal_ms + int.from_bytes(digest, "big") % max(1, width)

    @property
    def counts_from_completion(self) -> bool:
        return isinstance(self.rule, Every) and self.rule.after == "completion"

    def key_of(self, nominal_ms: int) -> str | None:
        """The idempotency key of an occurrence; None: its id."""
        body = self.body
        if body.key is None:
            return None
        return render(body.key, local_time(self.rule, from_ms(nominal_ms)), body.tenant, body.schedule)

    def record(self, nominal_ms: int) -> bytes:
        """The job of one occurrence."""
        b = self.body
        body = codec.Body(b.call, nominal_ms, b.args, self.key_of(nominal_ms), b.timeout_ms, b.keep_ms)
        return codec.encode_record(self.lane, b.max_attempts, body)


def open_plan(packed: bytes) -> Timetable:
    """A stored schedule, ready to be asked. Raises PayloadUndecodable or InvalidSchedule, whatever is wrong with it:
    one that a newer version or a foreign hand wrote must not stop the others of its shard."""
    body = decode_plan(packed)
    try:
        if body.key is not None:
            _check_key(body.key)
        return Timetable(body)
    except (KeyError, ConfigError, TypeError, AttributeError) as error:
        raise PayloadUndecodable(f"schedule {body.schedule!r} cannot be used: {error!r}") from error


def check_keys(table: Timetable, now_ms: int) -> None:
    """Two occurrences with the same key would be taken for one another by whoever trusts it. Compared are the next
    ones, and those around the next two changes of the zone's clocks, which show some times twice."""
    rule, body = table.rule, table.body
    if body.key is None or table.counts_from_completion:
        return
    since = [from_ms(now_ms)]
    if hasattr(rule, "tz") and rule.tz != "UTC":
        starts = zone(rule.tz).extend(now_ms // 1000 + 2 * 366 * 86_400)[0]
        changes = [at for at in starts if at > now_ms // 1000][:2]
        since += [from_ms((at - 4 * 3_600) * 1000) for at in changes]
    for begin in since:
        seen: dict[str, datetime] = {}
        for nominal in rule.preview(begin, min(KEYS_COMPARED, rule.max_runs or KEYS_COMPARED)):
            key = render(body.key, local_time(rule, nominal), body.tenant, body.schedule)
            if key in seen:
                raise InvalidSchedule(
                    f"idempotency_key {body.key!r} gives {key!r} for {seen[key].isoformat()} and for "
                    f"{nominal.isoformat()}: add a field that differs, such as {{date}}, {{offset}} or {{timestamp}}"
                )
            seen[key] = nominal


@lru_cache(maxsize=16_384)
def rule_of(packed: bytes) -> Rule:
    """The rule that was stored. Raises InvalidSchedule when it means nothing any more, say because its zone went."""
    stored: Any = codec.decode_any(packed)
    if isinstance(stored, dict):
        stored.pop("anchored", None)
    return schedule_from_dict(stored)


@lru_cache(maxsize=65_536)
def _next_ms(packed: bytes, after_ms: int) -> int:
    """Remembered: schedules that fire together share a few rules, and a step asks for the same time again."""
    found = rule_of(packed).next(from_ms(after_ms))
    return 0 if found is None else to_ms(found)


_check_key = lru_cache(maxsize=1_024)(check_template)
_misfire_of = lru_cache(maxsize=1_024)(Misfire.parse)
_overlap_of = lru_cache(maxsize=1_024)(Overlap.parse)
