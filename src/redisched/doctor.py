"""`examine()`: is the server fit, and does every shard keep invariant 1? With `fix`, mends it. Floor 6.

Works beside a running system. Each shard is walked in bounded steps (`survey.py`); what looks wrong there
is looked at again by one atomic script, which alone can tell a broken job from one that just moved, and
only that is reported. Called by `redisched doctor`; no worker or scheduler depends on it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from redisched.clock import mono_s
from redisched.inspector import Inspector
from redisched.keys import LAYOUT_VERSION, decode_tenant
from redisched.model import Recount
from redisched.scheduler.sweeper import find_flaws, heal
from redisched.store import Store
from redisched.store.server import ServerReport, examine_server
from redisched.survey import LONGEST_LEASE_MS, Survey, Suspect, lanes_in_use

CONFIRMED_AT_ONCE = 50
LOOKED_THROUGH = 500  # entries in one script call, beyond a whole lane: about 2 ms of the server
COUNTED_AT_ONCE = 10_000  # 3 ms
TENANTS_AT_ONCE = 100
LISTED = 1_000  # findings kept in words; all are counted
CLOCK_TOLERATED_MS = 1_000

_TEXTS = {
    "nowhere": "job {id} is in no place: nothing would ever run it",
    "twice": "job {id} is in more than one place ({places}): it could run twice",
    "astray": "job {id} is only where its record does not belong ({places})",
    "ghost": "there is an entry for job {id} ({places}), but no record",
    "endless": "the lease of job {id} ends more than a day from now ({places}): nobody would take it back",
    "unreadable": "the record of job {id} cannot be read; see HGET {jobs} {id}",
}
_MENDED = {
    "nowhere": "put back where its record belongs",
    "twice": "the most advanced place was kept",
    "astray": "put back where its record belongs",
    "ghost": "the entry was removed",
    "endless": "it now ends in 30 s, unless its worker renews it",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, in words."""

    kind: str
    shard: int | None
    subject: str  # a job's id or a tenant
    text: str
    fixed: str = ""  # what was done about it; empty: it remains


@dataclass(slots=True)
class Diagnosis:
    server: ServerReport
    namespace: str
    layout: int
    shards: int
    members: tuple[str, ...]
    records: int = 0
    suspects: int = 0  # looked at twice
    counts: Counter[str] = field(default_factory=Counter)
    fixed: int = 0
    findings: list[Finding] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)
    took_s: float = 0.0

    @property
    def remaining(self) -> int:
        return self.counts.total() - self.fixed

    def add(self, finding: Finding) -> None:
        self.counts[finding.kind] += 1
        self.fixed += bool(finding.fixed)
        if len(self.findings) < LISTED:
            self.findings.append(finding)


async def examine(store: Store, *, fix: bool = False, tell: Callable[[str], None] | None = None) -> Diagnosis:
    """Looks at the server and at every shard; `tell` hears how far it is."""
    begun_s = mono_s()
    inspector = Inspector(store)
    now_ms = await inspector.now_ms()
    meta = await store.read(lambda: store.client.hgetall(store.keys.meta))
    members = await store.read(lambda: store.client.zrangebyscore(store.keys.members, now_ms, "+inf"))
    diagnosis = Diagnosis(
        server=await examine_server(store),
        namespace=store.settings.namespace,
        layout=int(meta.get(b"layout", LAYOUT_VERSION)),
        shards=store.shards,
        members=tuple(m.decode() for m in members),
    )
    _judge_server(diagnosis)
    lanes = await lanes_in_use(store)
    for keys in store.keys.shards:
        survey = Survey(store, keys, *lanes[keys.shard], now_ms)
        await _Shard(store, survey, diagnosis, fix).examine()
        await _examine_schedules(store, keys.shard, diagnosis, fix)
        if tell is not None:
            tell(f"shard {keys.shard + 1} of {store.shards}: {diagnosis.records:,} jobs looked at")
    if diagnosis.records and not diagnosis.members:
        diagnosis.advice.append("there are jobs, but no worker or scheduler is alive")
    diagnosis.took_s = round(mono_s() - begun_s, 3)
    return diagnosis


async def _examine_schedules(store: Store, shard: int, diagnosis: Diagnosis, fix: bool) -> None:
    """What a scheduler's sweep would find."""
    async for flaws in find_flaws(store, shard):
        for flaw in flaws:
            fixed = "its next time was set" if fix and await heal(store, shard, flaw) else ""
            text = f"schedule {flaw.name} is broken: {flaw.why}"
            diagnosis.add(Finding("schedule", shard, flaw.name, text, fixed))


def _judge_server(diagnosis: Diagnosis) -> None:
    server = diagnosis.server
    if server.evicts:
        text = f"the server may evict jobs (maxmemory-policy {server.eviction}): "
        diagnosis.add(Finding("eviction", None, "server", text + "CONFIG SET maxmemory-policy noeviction"))
    elif server.eviction not in (None, "noeviction"):
        diagnosis.advice.append(
            f"maxmemory-policy is {server.eviction}: it does nothing without a memory limit; set noeviction"
        )
    if server.kind != "in-memory":
        if not server.info_allowed:
            diagnosis.advice.append("INFO is forbidden here: version, memory and replicas are unknown")
        if not server.config_allowed:
            diagnosis.advice.append("CONFIG is forbidden here: what the server fsyncs is unknown")
        if server.appendonly is False:
            diagnosis.advice.append("the server keeps no append-only file: set appendonly yes")
    if abs(server.clock_ahead_ms) > CLOCK_TOLERATED_MS:
        way = "ahead of" if server.clock_ahead_ms > 0 else "behind"
        diagnosis.advice.append(
            f"the server's clock is {abs(server.clock_ahead_ms) / 1000:.1f} s {way} this machine's; "
            f"the server's decides, so `at` times computed here are off by that"
        )


class _Shard:
    """One shard's second looks and repairs."""

    def __init__(self, store: Store, survey: Survey, diagnosis: Diagnosis, fix: bool) -> None:
        self._store = store
        self._survey = survey
        self._shard = survey.keys.shard
        self._diagnosis = diagnosis
        self._fix = fix
        self._unsure = 0
        self._mended = 0
        # A full lane is read whole, and then serves all suspects of the call that stand in it.
        self._limit = store.settings.lane_bound + LOOKED_THROUGH

    async def examine(self) -> None:
        batch: list[Suspect] = []
        async for suspect in self._survey.suspects():
            batch.append(suspect)
            if len(batch) == CONFIRMED_AT_ONCE:
                await self._confirm(batch)
                batch = []
        await self._confirm(batch)
        await self._recount()
        self._diagnosis.records += self._survey.records
        self._advise()

    async def _confirm(self, suspects: list[Suspect]) -> None:
        self._diagnosis.suspects += len(suspects)
        by_id = {suspect.id: suspect for suspect in suspects}
        wrong = await self._look(list(by_id.values()), fix=False)
        if self._fix and wrong:
            mendable = [by_id[job_id] for job_id, (word, _) in wrong.items() if word in _MENDED]
            # What it finds now is what it mends: a job that healed in between is not reported.
            again = await self._look(mendable, fix=True)
            wrong = {job_id: found for job_id, found in wrong.items() if found[0] not in _MENDED} | again
        for job_id, (word, places) in wrong.items():
            if word == "unsure":
                self._unsure += 1
                continue
            name = job_id.decode("utf-8", "backslashreplace")
            text = _TEXTS[word].format(id=name, places=places, jobs=self._survey.keys["jobs"])
            fixed = _MENDED.get(word, "") if self._fix else ""
            self._mended += bool(fixed)
            self._diagnosis.add(Finding(word, self._shard, name, text, fixed))

    async def _look(self, suspects: list[Suspect], *, fix: bool) -> dict[bytes, tuple[str, str]]:
        """Those that are not fine. The script stops at its budget and leaves the rest for another call."""
        wrong: dict[bytes, tuple[str, str]] = {}
        while suspects:
            rows = [
                part
                for suspect in suspects
                for kind, where in suspect.places or (("none", b""),)
                for part in (suspect.id, kind, where)
            ]
            answer = await self._store.repair(self._shard, self._limit, LONGEST_LEASE_MS, rows, fix=fix)
            later = {job_id for job_id, word, _ in answer if word == "later"}
            wrong |= {job_id: (word, at) for job_id, word, at in answer if word not in ("fine", "later")}
            suspects = [suspect for suspect in suspects if suspect.id in later]
        return wrong

    async def _recount(self) -> None:
        # Mended jobs may have been tallied where they were: then all tenants are counted again.
        names = self._survey.tenants | (self._survey.known_tenants if self._mended else set())
        tenants = sorted(name.decode("utf-8", "backslashreplace") for name in names if name)
        uncounted = False
        for at in range(0, len(tenants), TENANTS_AT_ONCE):
            chunk = tenants[at : at + TENANTS_AT_ONCE]
            rows = await self._store.recount(self._shard, COUNTED_AT_ONCE, chunk, fix=False)
            uncounted |= any(-1 in row.counted for row in rows)
            wrong = [row.tenant for row in rows if what_is_wrong(row)]
            if self._fix and (wrong or self._mended):
                # Of mended jobs' lanes a mark may be left over, which is no fault but can go as well.
                told = chunk if self._mended else wrong
                rows = await self._store.recount(self._shard, COUNTED_AT_ONCE, told, fix=True)
            for row in rows:
                for kind, text in what_is_wrong(row):
                    fixed = "counted again" if self._fix else ""
                    name = decode_tenant(row.tenant)
                    self._diagnosis.add(Finding(kind, self._shard, name, f"tenant {name}: {text}", fixed))
        if uncounted:
            self._diagnosis.advice.append(
                f"shard {self._shard} holds more than {COUNTED_AT_ONCE:,} waiting, running or dead jobs: "
                f"their tallies cannot be checked in one step and were not"
            )

    def _advise(self) -> None:
        if self._unsure:
            self._diagnosis.advice.append(
                f"{self._unsure} jobs of shard {self._shard} are not among the first "
                f"{self._store.lane_scan:,} entries of their lanes: look again when these are shorter"
            )
        if self._survey.overdue_leases:
            self._diagnosis.advice.append(
                f"{self._survey.overdue_leases} leases of shard {self._shard} ended more than 10 s ago and "
                f"nobody took the jobs back: is a worker or a scheduler running?"
            )


def what_is_wrong(row: Recount) -> list[tuple[str, str]]:
    """Kind and words of each thing that a tenant's counts, marks or place in the ring get wrong."""
    wrong: list[tuple[str, str]] = []
    for name, counted, tallied in zip(("waiting", "running", "dead"), row.counted, row.tallied, strict=True):
        if counted not in (-1, tallied):
            wrong.append(("tally", f"{tallied:,} {name} are tallied, {counted:,} were counted"))
    # A mark too many is no fault: a cancelled job leaves one behind; the next visit of a claim removes it.
    if missing := set(row.marks_due) - set(row.marks_set):
        wrong.append(("marks", f"ready work in {_places_of(missing)} is not marked: nobody would take it"))
    if row.times_in_ring != bool(row.marks_set):
        what = {0: "missing in the ring: nobody would take its ready work"}.get(
            row.times_in_ring, f"{row.times_in_ring} times in the ring: it would get more than its share"
        )
        if row.times_in_ring == 1:
            what = "in the ring without a mark of where its work is"
        wrong.append(("ring", what))
    return wrong


def _places_of(marks: set[str]) -> str:
    names = {"h": "high", "n": "normal", "l": "low"}
    return ", ".join(f"the {names[mark.lower()]} {'overflow' if mark.isupper() else 'lane'}" for mark in sorted(marks))
