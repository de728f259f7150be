"""What a schedule does when its time has come. Pure: a timetable, where it stands and what time it is give a step.

The step is a proposal: `lua/fire.lua` takes it only if the schedule is still where it was seen, and
decides itself what depends on what runs (overlap) and on the tenant's pace.

An occurrence that is up to TOLERANCE late is made as if it were in time: a scheduler was busy, or
restarted. What is later was missed, and the misfire policy says what becomes of it:

    SKIP       nothing, but one that is in time is made
    RUN_ONCE   the newest is made, if it is not older than the grace
    run_all    those not older than the grace are made one by one, the newest `max`, the oldest first
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from datetime import timedelta
from typing import Final, NamedTuple

from redisched.clock import EPOCH
from redisched.cron import Every
from redisched.plan.body import Timetable
from redisched.plan.standing import Mode, Standing

_MS: Final = timedelta(milliseconds=1)
TOLERANCE_MS: Final = 10_000
WALK: Final = 5_000  # occurrences looked at in one step; about 15 ms
HELD_WALK: Final = 10_000  # three hours of seconds, for one that waited that long
FROM_COMPLETION: Final = -1  # as a next time: not known before the run ends


class Step(NamedTuple):
    """For `lua/fire.lua`, in the order of its words."""

    kind: str  # f: make an occurrence, l: make the last one, p: only pass on, c: see whether the run has ended
    version: int
    cursor_ms: int
    occurrence_ms: int
    at_ms: int
    next_ms: int  # 0: it has ended; FROM_COMPLETION
    look_ms: int
    missed: int
    skipped: int
    catch_ms: int
    overlap: str
    most: int

    @property
    def words(self) -> str:
        kind, version, cursor, occurrence, at, following, look, missed, skipped, catch, overlap, most = self
        times = f"{cursor} {occurrence} {at} {following} {look}"
        return f"{kind} {version} {times} {missed} {skipped} {catch} {overlap} {most}"


def next_step(table: Timetable, standing: Standing, now_ms: int, due_ms: int = 0) -> Step:
    """What to do with a schedule that is looked at. `due_ms`: when it was to be looked at; 0: just now."""
    cursor = standing.cursor_ms
    if due_ms and now_ms - due_ms > TOLERANCE_MS:
        # Nobody looked in time: an outage, also in the middle of a catch-up. What is missed is measured anew.
        standing = replace(standing, catch_ms=0)
    if standing.mode is Mode.RUNNING:
        return _step(table, standing, "c", 0, 0)
    if standing.mode is Mode.RAN:
        return _pass(table, standing, table.next_ms(cursor))
    if not cursor or _is_used_up(table, standing.made):
        return _pass(table, standing, 0)
    look_ms = table.look_ms(cursor)
    if look_ms > now_ms:
        return _pass(table, standing, cursor)
    if table.counts_from_completion:
        return _fire(table, standing, cursor, FROM_COMPLETION)
    if standing.mode is Mode.HELD and not standing.catch_ms:
        return _fire_held(table, standing, now_ms)
    if standing.catch_ms >= cursor and table.misfire.kind == "all":
        # Chosen when the catch-up began: its age is measured then, not now.
        late = now_ms - look_ms > TOLERANCE_MS
        return _fire(table, standing, cursor, table.next_ms(cursor), catch_ms=standing.catch_ms if late else 0)
    if standing.catch_ms and table.misfire.kind == "all" and table.overlap.kind != "allow":
        return _caught_up_step(table, standing, now_ms)
    if now_ms - look_ms <= TOLERANCE_MS:
        return _fire(table, standing, cursor, table.next_ms(cursor))
    return _late_step(table, standing, now_ms)


def backfill_step(table: Timetable, standing: Standing, now_ms: int) -> Step:
    """The next occurrence of a backfill: one after the other, each in its turn."""
    last_ms, _ = standing.range
    cursor = standing.cursor_ms
    if not cursor or cursor > last_ms:
        return _pass(table, standing, 0)
    following = table.next_ms(cursor)
    if following > last_ms:
        following = 0
    step = _fire(table, standing, cursor, following, catch_ms=standing.catch_ms)
    overlap = "s" if table.overlap.kind == "cancel" else step.overlap
    return step._replace(kind="f", look_ms=now_ms, at_ms=now_ms, overlap=overlap)


def count_between(table: Timetable, first_ms: int, last_ms: int, limit: int) -> tuple[int, int]:
    """How many occurrences lie in a range, and the first of them. Counts no further than `limit` + 1."""
    found = first = table.next_ms(first_ms - 1)
    count = 0
    while found and found <= last_ms and count <= limit:
        count += 1
        found = table.next_ms(found)
    return count, first


def _caught_up_step(table: Timetable, standing: Standing, now_ms: int) -> Step:
    """What was chosen when the catch-up began is made. What became due behind it is as late as those took: the
    newest stands for it, the others overlapped. So a catch-up ends, however long its runs last."""
    due = _due(table, standing.cursor_ms, now_ms, 1, HELD_WALK)
    last = due.newest[-1]
    catch_ms = now_ms if now_ms - table.look_ms(last) > TOLERANCE_MS else 0
    return _fire(table, standing, last, due.following_ms, skipped=due.total - 1, catch_ms=catch_ms)


def _late_step(table: Timetable, standing: Standing, now_ms: int) -> Step:
    """The cursor was missed: what becomes of it and of all that are due."""
    keep = table.misfire.keep
    due = _due(table, standing.cursor_ms, now_ms, keep, max(WALK, 2 * keep))
    if due.is_cut:
        # More than can be looked at: all but the newest of these are passed over in any case.
        return _pass(table, standing, due.newest[0], missed=due.total - len(due.newest), look_ms=now_ms)
    last = due.newest[-1]
    if table.misfire.kind == "skip":
        if now_ms - table.look_ms(last) <= TOLERANCE_MS:
            return _fire(table, standing, last, due.following_ms, missed=due.total - 1)
        return _pass(table, standing, due.following_ms, missed=due.total)
    # Waiting for its turn does not make it older.
    oldest_ms = (standing.catch_ms or now_ms) - table.grace_ms
    kept = [nominal for nominal in due.newest if table.look_ms(nominal) >= oldest_ms]
    if not kept:
        return _pass(table, standing, due.following_ms, missed=due.total)
    first = kept[0]
    catch_ms = now_ms if now_ms - table.look_ms(first) > TOLERANCE_MS else 0
    then = kept[1] if len(kept) > 1 else due.following_ms
    return _fire(table, standing, first, then, missed=due.total - len(kept), catch_ms=catch_ms)


class _Due(NamedTuple):
    """The occurrences that are due."""

    total: int
    newest: list[int]
    following_ms: int  # the one after them; 0: none
    is_cut: bool = False  # there are more


def _due(table: Timetable, cursor_ms: int, now_ms: int, keep: int, limit: int) -> _Due:
    """From the cursor on, which is due. An interval is computed; anything else is walked, about `limit` of them."""
    if isinstance(table.rule, Every):
        interval_ms = round(table.rule.interval.total_seconds() * 1000)
        until_ms = now_ms if table.rule.end is None else min(now_ms, (table.rule.end - EPOCH) // _MS)
        count = max(0, until_ms - cursor_ms) // interval_ms + 1
        if count > 1 and table.look_ms(cursor_ms + (count - 1) * interval_ms) > now_ms:
            count -= 1  # its jitter holds it back
        last = cursor_ms + (count - 1) * interval_ms
        newest = [last - n * interval_ms for n in range(min(keep, count) - 1, -1, -1)]
        return _Due(count, newest, table.next_ms(last))
    count, newest_ones = 1, deque([cursor_ms], maxlen=keep)
    following = table.next_ms(cursor_ms)
    while following and (look_ms := table.look_ms(following)) <= now_ms:
        # Not cut so close to now that what is left would be in time.
        if count >= limit and now_ms - look_ms > 2 * TOLERANCE_MS:
            return _Due(count, list(newest_ones), following, is_cut=True)
        count += 1
        newest_ones.append(following)
        following = table.next_ms(following)
    return _Due(count, list(newest_ones), following)


def _fire_held(table: Timetable, standing: Standing, now_ms: int) -> Step:
    """It waited for the end of the one before it. What became due behind it is left out: one may wait."""
    due = _due(table, standing.cursor_ms, now_ms, 1, HELD_WALK)
    return _fire(table, standing, standing.cursor_ms, due.following_ms, skipped=due.total - 1)


def _is_used_up(table: Timetable, made: int) -> bool:
    return table.max_runs is not None and made >= table.max_runs


def _fire(
    table: Timetable,
    standing: Standing,
    nominal_ms: int,
    next_ms: int,
    missed: int = 0,
    skipped: int = 0,
    catch_ms: int = 0,
) -> Step:
    # The last one ends the schedule only if it is made: an overlap may leave it out.
    kind = "l" if _is_used_up(table, standing.made + 1) else "f"
    step = _step(table, standing, kind, nominal_ms, next_ms, missed, skipped)
    if catch_ms and table.misfire.kind == "all" and table.overlap.kind == "cancel":
        # Those that catch up one after the other do not cancel one another: they wait.
        step = step._replace(overlap="s")
    return step._replace(at_ms=table.look_ms(nominal_ms), catch_ms=catch_ms)


def _pass(table: Timetable, standing: Standing, next_ms: int, missed: int = 0, look_ms: int | None = None) -> Step:
    step = _step(table, standing, "p", 0, next_ms, missed)
    return step if look_ms is None else step._replace(look_ms=look_ms)


def _step(
    table: Timetable,
    standing: Standing,
    kind: str,
    nominal_ms: int,
    next_ms: int,
    missed: int = 0,
    skipped: int = 0,
) -> Step:
    return Step(
        kind,
        standing.version,
        standing.cursor_ms,
        nominal_ms,
        0,
        next_ms,
        table.look_ms(next_ms) if next_ms > 0 else 0,
        missed,
        skipped,
        0,
        table.overlap.letter,
        table.overlap.max_running,
    )
