"""The part of `Scheduler` that is about schedules: making them, finding them, declaring them in code."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import msgspec

from redisched import codec
from redisched.clock import delta_ms
from redisched.cron import Cron, Every, RRule, Rule
from redisched.errors import (
    ConfigError,
    InvalidCall,
    InvalidSchedule,
    QuotaExceeded,
    RedischedError,
    ScheduleChanged,
    StoreFull,
)
from redisched.keys import DEFAULT_TENANT, PRIORITIES, encode_tenant
from redisched.model import PlanView, Priority
from redisched.plan import PlanBody, check_template
from redisched.plan.body import check_schedule_name
from redisched.plans import Plan, PlanBook
from redisched.policy import Misfire, Overlap
from redisched.registry import Call, Handler, JobOptions, Registry, options_of
from redisched.store import Store

log = logging.getLogger("redisched.client")

DEFAULT_GRACE: Final = timedelta(hours=1)
LONGEST: Final = timedelta(days=3_660)


@dataclass(frozen=True, slots=True)
class Declared:
    """A schedule that the code declares, before any store is open."""

    body: PlanBody
    rule: Rule
    handler: Handler[..., Any]


@dataclass(frozen=True, slots=True)
class Placed:
    """What putting the declared schedules in place did."""

    changed: tuple[str, ...]  # created or replaced
    unchanged: tuple[str, ...]
    undeclared: tuple[tuple[str, str], ...]  # tenant and name of those that this application declared once
    refused: tuple[tuple[str, RedischedError], ...] = ()  # and why


class Recurring(ABC):
    registry: Registry
    _declared: dict[tuple[str, str], Declared]

    @property
    @abstractmethod
    def store(self) -> Store: ...

    @property
    @abstractmethod
    def book(self) -> PlanBook: ...

    @abstractmethod
    def _check_call(self, call: Call[Any]) -> JobOptions | None:
        """Refuses a call that could not run; answers the options of its handler, where the code is here."""

    # -- schedules by hand

    async def schedule(
        self,
        name: str,
        call: Call[Any],
        rule: Cron | Every | RRule,
        *,
        tenant: str = DEFAULT_TENANT,
        misfire: Misfire = Misfire.RUN_ONCE,
        grace: timedelta = DEFAULT_GRACE,
        overlap: Overlap = Overlap.SKIP,
        jitter: timedelta = timedelta(0),
        idempotency_key: str | None = None,
        priority: Priority = "normal",
        if_version: int | None = None,
    ) -> Plan:
        """Creates a schedule, or replaces the one of that name. The same again changes nothing.

        misfire          what becomes of occurrences that were missed
        grace            how old they may be
        overlap          what happens when the one before still runs
        jitter           spreads starts by up to so much; the same on every host
        idempotency_key  a template such as "report-{week}" for `ctx.idempotency_key`; by default the job's id
        if_version       raise ScheduleChanged unless it is at this version (0: unless it is new)
        """
        body = self._plan_body(name, call, rule, tenant, misfire, grace, overlap, jitter, idempotency_key, priority)
        version, _ = await self.book.put(body, rule, if_version)
        return Plan(self.book, name, tenant, version)

    def get_plan(self, name: str, tenant: str = DEFAULT_TENANT) -> Plan:
        """A handle for a schedule made elsewhere."""
        check_schedule_name(name)
        return Plan(self.book, name, tenant)

    async def plans(self, tenant: str | None = None, *, after: str = "", limit: int = 50) -> list[PlanView]:
        """Schedules in the order of their names, a page at a time: `after` is the `cursor` of the last one before."""
        return await self.book.page(tenant, after, limit)

    # -- schedules in code

    def cron(
        self, expr: str, *, tz: str = "UTC", seconds: bool = False, **options: Any
    ) -> Callable[[Callable[..., Any]], Handler[..., Any]]:
        """Declares a job and its schedule: `@sched.cron("0 9 * * 1", tz="America/New_York")`. See `recurring`."""
        return self.recurring(Cron(expr, tz, seconds=seconds), **options)

    def every(self, interval: timedelta, **options: Any) -> Callable[[Callable[..., Any]], Handler[..., Any]]:
        """Declares a job and its schedule: `@sched.every(timedelta(minutes=10))`. See `recurring`."""
        return self.recurring(Every(interval), **options)

    def recurring(
        self,
        rule: Cron | Every | RRule,
        *,
        name: str | None = None,
        tenant: str = DEFAULT_TENANT,
        misfire: Misfire = Misfire.RUN_ONCE,
        grace: timedelta = DEFAULT_GRACE,
        overlap: Overlap = Overlap.SKIP,
        jitter: timedelta = timedelta(0),
        idempotency_key: str | None = None,
        priority: Priority = "normal",
    ) -> Callable[[Callable[..., Any]], Handler[..., Any]]:
        """Declares a schedule for a function that needs no arguments, or for a job declared below it.

        It is put in place when a worker starts. The schedule's name is the job's, unless `name` says another.
        """

        def declare(function: Callable[..., Any]) -> Handler[..., Any]:
            handler = function if isinstance(function, Handler) else self.registry.add(function, None, options_of())
            chosen = name or handler.name
            try:
                call = handler()
            except InvalidCall as error:
                raise ConfigError(f"schedule {chosen!r}: its job must need no arguments: {error}") from None
            parts = (tenant, misfire, grace, overlap, jitter, idempotency_key, priority)
            body = self._plan_body(chosen, call, rule, *parts)
            old = self._declared.get((tenant, chosen))
            if old is not None and (old.handler is handler or old.body.call != body.call):
                raise ConfigError(f"two schedules are named {chosen!r}; give one of them another: name=...")
            self._declared[tenant, chosen] = Declared(body, rule, handler)
            return handler

        return declare

    @property
    def declared_schedules(self) -> list[tuple[str, str]]:
        """Tenant and name of the schedules that the code declares."""
        return list(self._declared)

    async def put_schedules(self, origin: str = "") -> Placed:
        """Puts the schedules that the code declares in place; a worker does so when it starts. `origin`: whose they
        are, such as `app:sched`. Those that the same origin declared before and no more are only reported."""
        changed: list[str] = []
        unchanged: list[str] = []
        refused: list[tuple[str, RedischedError]] = []
        for (_, name), declared in self._declared.items():
            body = msgspec.structs.replace(declared.body, origin=origin)
            try:
                _, is_new = await self.book.put(body, declared.rule)
                (changed if is_new else unchanged).append(name)
            except (InvalidSchedule, QuotaExceeded, ScheduleChanged, StoreFull) as error:
                # One that is refused, say because its end has come, must not keep the others from their place.
                log.error("schedule of the code is not in place", extra={"schedule": name, "error": str(error)})
                refused.append((name, error))
        undeclared = await self.undeclared_schedules(origin)
        await self.book.note_declared(origin, [*self._declared, *undeclared])
        for tenant, name in undeclared:
            facts = {"schedule": name, "tenant": tenant, "app": origin}
            log.warning("the code declares this schedule no more; `redisched schedules prune` removes it", extra=facts)
        return Placed(tuple(changed), tuple(unchanged), tuple(undeclared), tuple(refused))

    async def undeclared_schedules(self, origin: str = "") -> list[tuple[str, str]]:
        """Tenant and name of those that the code of `origin` declared once and no more."""
        return await self.book.undeclared(origin, self._declared)

    async def prune_schedules(self, origin: str = "") -> list[tuple[str, str]]:
        """Deletes those; answers tenant and name of each."""
        gone = await self.undeclared_schedules(origin)
        for tenant, name in gone:
            await self.book.delete(name, tenant)
        await self.book.note_declared(origin, list(self._declared))
        return gone

    def _plan_body(
        self,
        name: str,
        call: Call[Any],
        rule: Rule,
        tenant: str,
        misfire: Misfire,
        grace: timedelta,
        overlap: Overlap,
        jitter: timedelta,
        key: str | None,
        priority: Priority,
    ) -> PlanBody:
        """All of it checked, nothing stored."""
        check_schedule_name(name)
        encode_tenant(tenant)
        if not isinstance(rule, Cron | Every | RRule):
            raise InvalidSchedule(f"schedule {name!r}: give a Cron, an Every or an RRule, not {rule!r:.80}")
        if not isinstance(misfire, Misfire):
            raise InvalidSchedule(f"misfire is Misfire.SKIP, .RUN_ONCE or .run_all(max=24), not {misfire!r:.80}")
        if not isinstance(overlap, Overlap):
            raise InvalidSchedule(f"overlap is Overlap.SKIP, .ALLOW, .QUEUE or .CANCEL, not {overlap!r:.80}")
        for word, value in (("grace", grace), ("jitter", jitter)):
            if not isinstance(value, timedelta) or not timedelta(0) <= value <= LONGEST:
                raise InvalidSchedule(f"{word} is a timedelta from 0 to ten years, not {value!r}")
        if priority not in PRIORITIES:
            raise InvalidSchedule(f"priority is one of {', '.join(PRIORITIES)}, not {priority!r}")
        if jitter and isinstance(rule, Every) and rule.after == "completion":
            raise InvalidSchedule("jitter does not go with after='completion', whose times are not fixed")
        if key is not None:
            check_template(key)
        options = self._check_call(call)
        return PlanBody(
            schedule=name,
            tenant=tenant,
            rule=codec.raw(b"\xc0"),
            call=call.name,
            args=codec.raw(call.packed),
            misfire=str(misfire),
            grace_ms=delta_ms(grace),
            overlap=str(overlap),
            jitter_ms=delta_ms(jitter),
            key=key,
            priority=priority,
            max_attempts=options.retry.max_attempts if options else JobOptions().retry.max_attempts,
            timeout_ms=options.timeout_ms if options else None,
            keep_ms=options.keep_ms if options else None,
        )
