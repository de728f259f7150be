"""The pure steps of a schedule: tries to find an instant at which an occurrence is lost, made twice or not counted."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from redisched import codec
from redisched.clock import from_ms, to_ms
from redisched.cron import Cron, Every, Rule
from redisched.plan import TOLERANCE_MS, Mode, PlanBody, Standing, Step, Timetable, backfill_step, next_step
from redisched.plan.body import pack_rule
from redisched.plan.steps import FROM_COMPLETION, count_between
from redisched.policy import Misfire

NOON = datetime(2027, 3, 1, 12, tzinfo=UTC)
NOON_MS = to_ms(NOON)
SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
MINUTELY = Cron("* * * * *")
SECONDLY = Cron("* * * * * *", seconds=True)
EACH_MS = Every(timedelta(milliseconds=1), anchor=NOON)
ONCE, SKIP = Misfire.RUN_ONCE, Misfire.SKIP


def table_of(rule: Rule, misfire: Misfire = ONCE, **parts: Any) -> Timetable:
    packed = pack_rule(rule, NOON)
    return Timetable(PlanBody("s", "default", packed, "call", codec.raw(b"\x80"), misfire=str(misfire), **parts))


def at(cursor_ms: int, **parts: Any) -> Standing:
    return Standing(version=3, cursor_ms=cursor_ms, **parts)


def minute(n: int) -> int:
    return NOON_MS + n * MINUTE


def take(standing: Standing, step: Step, now_ms: int) -> Standing:
    """What `lua/fire.lua` makes of a step when nothing lives and every turn is now."""
    made = standing.made + (step.kind in "fl")
    missed, skipped = standing.missed + step.missed, standing.skipped + step.skipped
    following = 0 if step.kind == "l" else step.next_ms
    mode = Mode.RUNNING if following == FROM_COMPLETION else Mode.ACTIVE if following else Mode.ENDED
    catch_ms = 0 if step.look_ms > now_ms else step.catch_ms
    counts: dict[str, Any] = {"made": made, "missed": missed, "skipped": skipped, "catch_ms": catch_ms}
    return replace(standing, cursor_ms=max(0, following), mode=mode, **counts)


def settle(table: Timetable, standing: Standing, now_ms: int, bound: int) -> tuple[list[int], Standing, int]:
    """Steps until nothing is due: what was made, where it stands, in how many steps."""
    made: list[int] = []
    for steps in range(bound + 1):
        if not standing.cursor_ms or table.look_ms(standing.cursor_ms) > now_ms:
            return made, standing, steps
        step = next_step(table, standing, now_ms)
        assert (step.version, step.cursor_ms) == (standing.version, standing.cursor_ms)
        if step.occurrence_ms:
            made.append(step.occurrence_ms)
        before, standing = standing, take(standing, step, now_ms)
        assert standing.cursor_ms > before.cursor_ms or not standing.cursor_ms, "a step that does not move on"
    raise AssertionError(f"still due after {bound} steps: {standing}")


# -- tolerance


def test_early_is_not_yet() -> None:
    # A look a millisecond early must neither make nor lose it, and must come back on the instant.
    step = next_step(table_of(MINUTELY), at(minute(1)), minute(1) - 1)
    assert (step.kind, step.next_ms, step.look_ms, step.missed) == ("p", minute(1), minute(1), 0)


@pytest.mark.parametrize("misfire", [SKIP, ONCE, Misfire.run_all(max=1)], ids=str)
@pytest.mark.parametrize("late_ms", [0, 1, TOLERANCE_MS - 1, TOLERANCE_MS])
def test_up_to_the_tolerance_is_in_time(misfire: Misfire, late_ms: int) -> None:
    # Every policy makes what a busy scheduler is late with; no grace is needed for it, and no turn.
    step = next_step(table_of(MINUTELY, misfire, grace_ms=0), at(minute(1)), minute(1) + late_ms)
    assert (step.kind, step.occurrence_ms, step.at_ms) == ("f", minute(1), minute(1))
    assert (step.next_ms, step.look_ms, step.missed, step.catch_ms) == (minute(2), minute(2), 0, 0)


def test_a_millisecond_past_the_tolerance_is_missed() -> None:
    # The edge itself, for each policy: SKIP passes on, the others call it a catch-up.
    now_ms = minute(1) + TOLERANCE_MS + 1
    skip = next_step(table_of(MINUTELY, SKIP), at(minute(1)), now_ms)
    assert (skip.kind, skip.missed, skip.next_ms, skip.catch_ms) == ("p", 1, minute(2), 0)
    for misfire in (ONCE, Misfire.run_all(max=1)):
        step = next_step(table_of(MINUTELY, misfire), at(minute(1)), now_ms)
        assert (step.kind, step.occurrence_ms, step.missed, step.catch_ms) == ("f", minute(1), 0, now_ms)


def test_each_one_within_the_tolerance_is_made() -> None:
    # Ten seconds late with a secondly rule: eleven are due, none is missed.
    first = NOON_MS + SECOND
    for misfire in (SKIP, ONCE, Misfire.run_all(max=2)):
        made, after, _ = settle(table_of(SECONDLY, misfire), at(first), first + TOLERANCE_MS, 20)
        assert made == [first + n * SECOND for n in range(11)]
        assert (after.missed, after.made) == (0, 11)


# -- policies


def test_skip_makes_the_newest_only_in_time() -> None:
    # None of the missed; the newest is none of them when it is at most the tolerance late.
    table = table_of(MINUTELY, SKIP)
    step = next_step(table, at(minute(1)), minute(5) + TOLERANCE_MS)
    assert (step.kind, step.occurrence_ms, step.missed, step.next_ms) == ("f", minute(5), 4, minute(6))
    step = next_step(table, at(minute(1)), minute(5) + TOLERANCE_MS + 1)
    assert (step.kind, step.occurrence_ms, step.missed, step.next_ms) == ("p", 0, 5, minute(6))


@pytest.mark.parametrize(("older_ms", "kind", "missed"), [(-1, "f", 2), (0, "f", 2), (1, "p", 3)])
def test_the_grace_of_run_once_to_the_millisecond(older_ms: int, kind: str, missed: int) -> None:
    # As old as the grace is not older than it.
    table = table_of(MINUTELY, ONCE, grace_ms=30 * SECOND)
    step = next_step(table, at(minute(1)), minute(3) + 30 * SECOND + older_ms)
    assert (step.kind, step.missed, step.next_ms) == (kind, missed, minute(4))
    assert step.occurrence_ms == (minute(3) if kind == "f" else 0)


@pytest.mark.parametrize(("older_ms", "first"), [(-1, 3), (0, 3), (1, 4)])
def test_the_grace_of_run_all_to_the_millisecond(older_ms: int, first: int) -> None:
    # The grace cuts the old end off, what it leaves is made one by one.
    table = table_of(MINUTELY, Misfire.run_all(max=100), grace_ms=3 * MINUTE)
    now_ms = minute(6) + older_ms
    made, after, _ = settle(table, at(minute(1)), now_ms, 20)
    newest = 6 if older_ms >= 0 else 5
    assert made == [minute(n) for n in range(first, newest + 1)]
    assert (after.missed, after.made, after.cursor_ms) == (first - 1, len(made), minute(newest + 1))


def test_run_all_keeps_the_newest_and_makes_the_oldest_of_them_first() -> None:
    # More than max within the grace: the wrong end would be the old ones, the wrong order the newest first.
    table = table_of(MINUTELY, Misfire.run_all(max=3))
    made, after, steps = settle(table, at(minute(1)), minute(10) + 30_000, 20)
    assert made == [minute(8), minute(9), minute(10)]
    assert (after.missed, steps) == (7, 3)


def test_waiting_for_a_turn_makes_nothing_older() -> None:
    # Chosen when the catch-up began; its grace is over long before its turn.
    now_ms = minute(10)
    for misfire, chosen in ((ONCE, minute(10)), (Misfire.run_all(max=9), minute(9))):
        table = table_of(MINUTELY, misfire, grace_ms=90 * SECOND)
        waits = at(chosen, mode=Mode.TURN, catch_ms=now_ms + 1)
        step = next_step(table, waits, chosen + 5 * HOUR)
        assert step.kind == "f", misfire
        assert step.occurrence_ms == (chosen if misfire.kind == "all" else chosen + 5 * HOUR)


def test_what_becomes_due_during_a_catch_up_is_part_of_it() -> None:
    # Behind the ones that were chosen, not measured against a grace that began later.
    table = table_of(MINUTELY, Misfire.run_all(max=9), grace_ms=MINUTE, overlap="allow")
    step = next_step(table, at(minute(11), catch_ms=minute(10) + 1), minute(14))
    assert (step.kind, step.occurrence_ms, step.next_ms, step.missed) == ("f", minute(11), minute(12), 0)


@pytest.mark.parametrize("overlap", ["skip", "queue", "cancel"])
def test_a_catch_up_ends_however_long_its_runs_last(overlap: str) -> None:
    # Those due behind it overlapped with it: one that makes them all would be later with each, for ever.
    table = table_of(MINUTELY, Misfire.run_all(max=9), overlap=overlap)
    step = next_step(table, at(minute(11), catch_ms=minute(10) + 1), minute(14))
    assert (step.kind, step.occurrence_ms, step.next_ms) == ("f", minute(14), minute(15))
    assert (step.missed, step.skipped, step.catch_ms) == (0, 3, 0)


@pytest.mark.parametrize("misfire", [ONCE, Misfire.run_all(max=9)], ids=str)
def test_an_outage_in_the_middle_of_a_catch_up_is_measured_anew(misfire: Misfire) -> None:
    # It had its turn a minute after eleven, and nobody was there until the next day: far past the grace.
    table = table_of(Cron("0 9 * * *"), misfire)
    nine = to_ms(NOON.replace(hour=9))
    waits = at(nine, mode=Mode.TURN, catch_ms=nine + 30 * MINUTE)
    turn = nine + 31 * MINUTE
    assert next_step(table, waits, turn, turn).occurrence_ms == nine
    step = next_step(table, waits, turn + 11 * HOUR, turn)
    assert (step.kind, step.missed, step.next_ms) == ("p", 1, nine + DAY)


@pytest.mark.parametrize("misfire", [ONCE, Misfire.run_all(max=5)], ids=str)
def test_a_second_outage_has_a_grace_of_its_own(misfire: Misfire) -> None:
    # 9:00 is caught up at 9:30; next day the outage lasts until 20:00: eleven hours are more than the grace.
    table = table_of(Cron("0 9 * * *"), misfire)
    nine = to_ms(NOON.replace(hour=9))
    made, standing, _ = settle(table, at(nine), nine + 30 * MINUTE, 5)
    assert (made, standing.cursor_ms) == ([nine], nine + DAY)
    made, standing, _ = settle(table, standing, nine + DAY + 11 * HOUR, 5)
    assert (made, standing.missed) == ([], 1)


# -- walks

WALKED = [
    *((SECONDLY, misfire) for misfire in (SKIP, ONCE, Misfire.run_all(max=1), Misfire.run_all(max=10_000))),
    *((EACH_MS, misfire) for misfire in (SKIP, ONCE, Misfire.run_all(max=1))),
    (EACH_MS, Misfire.run_all(max=10_000)),
]


@pytest.mark.parametrize("grace_ms", [0, 90 * SECOND, 3 * DAY], ids=["none", "90s", "3d"])
@pytest.mark.parametrize(("rule", "misfire"), WALKED, ids=str)
def test_two_days_are_walked_in_bounded_steps(rule: Rule, misfire: Misfire, grace_ms: int) -> None:
    # A walk that is cut must lose no count and must not choose from the wrong end.
    size = SECOND if rule is SECONDLY else 1
    first, now_ms = NOON_MS + size, NOON_MS + 2 * DAY + 700
    newest = now_ms // size * size
    oldest = max(newest - (misfire.keep - 1) * size, -(-(now_ms - grace_ms) // size) * size)
    expected = list(range(oldest, newest + 1, size))
    if misfire == SKIP:
        expected = [newest]
    made, after, steps = settle(table_of(rule, misfire, grace_ms=grace_ms), at(first), now_ms, 60 + misfire.keep)
    assert made == expected
    assert after.made + after.missed == (newest - first) // size + 1
    assert (after.cursor_ms, after.skipped) == (newest + size, 0)
    assert steps - len(made) <= 40


@pytest.mark.parametrize("rule", [SECONDLY, Every(timedelta(seconds=1), anchor=NOON)], ids=["cron", "every"])
@pytest.mark.parametrize("misfire", [SKIP, ONCE, Misfire.run_all(max=2)], ids=str)
def test_a_walk_that_is_cut_just_before_now(rule: Rule, misfire: Misfire) -> None:
    # 5,005 are due: what is left after the first 5,000 is still the outage's, and one stands for all.
    first, now_ms = NOON_MS + SECOND, NOON_MS + 5_005 * SECOND
    made, after, _ = settle(table_of(rule, misfire), at(first), now_ms, 50)
    assert made == [now_ms - n * SECOND for n in reversed(range(misfire.keep))]
    assert after.made + after.missed == 5_005


@pytest.mark.parametrize("misfire", [SKIP, ONCE, Misfire.run_all(max=7)], ids=str)
def test_an_interval_that_ended_in_the_outage(misfire: Misfire) -> None:
    # A jump must not pass over the end, and the last ones are counted like all others.
    end = NOON + timedelta(hours=5, microseconds=500)
    table = table_of(replace(EACH_MS, end=end), misfire, grace_ms=DAY)
    made, after, steps = settle(table, at(NOON_MS + 1), NOON_MS + 6 * HOUR, 60)
    last = NOON_MS + 5 * HOUR
    assert made == ([] if misfire == SKIP else list(range(last - misfire.keep + 1, last + 1)))
    assert (after.made + after.missed, after.cursor_ms, after.mode) == (5 * HOUR, 0, Mode.ENDED)
    assert steps <= 50


def test_counting_a_range_stops_past_its_limit() -> None:
    # A backfill of a secondly rule over a century must be refused before it is counted.
    table = table_of(SECONDLY)
    assert count_between(table, NOON_MS, NOON_MS + 9 * SECOND, 100) == (10, NOON_MS)
    assert count_between(table, NOON_MS + 1, NOON_MS + 100 * 365 * DAY, 50) == (51, NOON_MS + SECOND)
    assert count_between(table, NOON_MS + 1, NOON_MS + 2, 50)[0] == 0


# -- jitter


def test_jitter_depends_on_schedule_and_nominal_time_alone() -> None:
    # Two hosts that disagree would fire at two times; one value for all would spread nothing.
    tables = [table_of(MINUTELY, jitter_ms=30_000) for _ in range(2)]
    other = Timetable(replace_body(tables[0], schedule="other"))
    looks = [[t.look_ms(minute(n)) - minute(n) for n in range(200)] for t in (*tables, other)]
    assert looks[0] == looks[1] != looks[2]
    assert min(looks[0]) < 2_000
    assert 28_000 < max(looks[0]) <= 30_000


def replace_body(table: Timetable, **parts: Any) -> PlanBody:
    return PlanBody(**{name: getattr(table.body, name) for name in PlanBody.__struct_fields__} | parts)


@pytest.mark.parametrize("rule", [SECONDLY, EACH_MS, Every(timedelta(seconds=7), anchor=NOON)], ids=str)
def test_jitter_never_reaches_the_next_time(rule: Rule) -> None:
    # An hour of jitter on a secondly rule: two at once, or in the wrong order, would be new times.
    table = table_of(rule, jitter_ms=HOUR)
    nominal = table.next_ms(NOON_MS)
    for _ in range(500):
        following = table.next_ms(nominal)
        assert nominal <= table.look_ms(nominal) < following
        nominal = following


def test_lateness_counts_from_the_time_with_jitter() -> None:
    # Otherwise jitter past the tolerance would make every occurrence late.
    table = table_of(Cron("0 * * * *"), SKIP, jitter_ms=30 * MINUTE)
    nominal = next(n for n in range(NOON_MS, NOON_MS + 50 * HOUR, HOUR) if table.look_ms(n) > n + MINUTE)
    look = table.look_ms(nominal)
    assert next_step(table, at(nominal), look - 1)._replace(kind="?") == next_step(
        table, at(nominal), nominal
    )._replace(kind="?")
    step = next_step(table, at(nominal), look + TOLERANCE_MS)
    assert (step.kind, step.occurrence_ms, step.at_ms) == ("f", nominal, look)
    assert next_step(table, at(nominal), look + TOLERANCE_MS + 1).kind == "p"


# -- ends


def test_the_last_of_max_runs_is_marked() -> None:
    # It ends the schedule only if it is made, which the script decides: so it must be told.
    table = table_of(Cron("* * * * *", max_runs=3))
    kinds = [next_step(table, at(minute(1), made=made), minute(1)).kind for made in range(4)]
    assert kinds == ["f", "f", "l", "p"]
    over = next_step(table, at(minute(1), made=3), minute(1))
    assert (over.next_ms, over.missed) == (0, 0)


def test_max_runs_counts_what_was_made_not_what_was_missed() -> None:
    # Ten were missed, three may be made: all three are left.
    table = table_of(Cron("* * * * *", max_runs=3), SKIP)
    made, after, _ = settle(table, at(minute(1)), minute(10) + 30_000, 20)
    assert (made, after.missed, after.mode) == ([], 10, Mode.ACTIVE)
    table = table_of(Cron("* * * * *", max_runs=3), Misfire.run_all(max=9))
    made, after, _ = settle(table, at(minute(1)), minute(10) + 30_000, 20)
    assert (made, after.mode) == ([minute(2), minute(3), minute(4)], Mode.ENDED)


@pytest.mark.parametrize("late_ms", [0, MINUTE], ids=["in time", "late"])
def test_the_end_of_a_rule_ends_it(late_ms: int) -> None:
    # An occurrence on the very end counts; there is no next one.
    table = table_of(Cron("* * * * *", end=from_ms(minute(3))))
    made, after, _ = settle(table, at(minute(3)), minute(3) + late_ms, 5)
    assert (made, after.cursor_ms, after.mode) == ([minute(3)], 0, Mode.ENDED)


def test_a_cursor_of_nothing_ends_it() -> None:
    # Healed from a rule without a next time: it must pass on, not ask for the time after 1970.
    step = next_step(table_of(MINUTELY), at(0), NOON_MS)
    assert (step.kind, step.next_ms, step.occurrence_ms) == ("p", 0, 0)


# -- modes


def test_counting_from_completion() -> None:
    # The next time is not known before the run ends; then it is the end plus the interval.
    table = table_of(Every(timedelta(minutes=10), after="completion"))
    fired = next_step(table, at(NOON_MS), NOON_MS)
    assert (fired.kind, fired.occurrence_ms, fired.next_ms, fired.look_ms) == ("f", NOON_MS, FROM_COMPLETION, 0)
    asks = next_step(table, at(0, mode=Mode.RUNNING), NOON_MS + HOUR)
    assert (asks.kind, asks.occurrence_ms) == ("c", 0)
    ended = next_step(table, at(NOON_MS + 90_000, mode=Mode.RAN), NOON_MS + 2 * HOUR)
    assert (ended.kind, ended.next_ms, ended.missed) == ("p", NOON_MS + 90_000 + 10 * MINUTE, 0)


def test_completion_with_an_end_and_with_max_runs() -> None:
    # The end is met when the next time is computed; the last run when it is made.
    rule = Every(timedelta(minutes=10), after="completion", end=NOON + timedelta(minutes=15), max_runs=2)
    table = table_of(rule)
    assert next_step(table, at(NOON_MS + 6 * MINUTE, mode=Mode.RAN), NOON_MS + 6 * MINUTE).next_ms == 0
    assert next_step(table, at(NOON_MS, made=1), NOON_MS).kind == "l"


def test_a_held_one_is_made_and_those_behind_it_are_skipped() -> None:
    # One may wait: what became due behind it is left out and counted as skipped, not as missed.
    step = next_step(table_of(MINUTELY), at(minute(1), mode=Mode.HELD), minute(4) + 30_000)
    assert (step.kind, step.occurrence_ms, step.next_ms) == ("f", minute(1), minute(5))
    assert (step.skipped, step.missed, step.catch_ms) == (3, 0, 0)


def test_a_held_one_leaves_out_all_behind_it_however_many() -> None:
    # A secondly schedule whose run lasts two hours: still one may wait, and nothing was missed.
    first = NOON_MS + SECOND
    held = at(first, mode=Mode.HELD)
    made, after, _ = settle(table_of(SECONDLY, Misfire.run_all(max=50)), held, first + 2 * HOUR, 100)
    assert (made, after.missed, after.skipped) == ([first], 0, 7_200)


def test_a_held_catch_up_is_still_the_catch_up() -> None:
    # It waited for an end, not for its time: the others behind it are made too.
    table = table_of(MINUTELY, Misfire.run_all(max=9))
    held = at(minute(1), mode=Mode.HELD, catch_ms=minute(3) + 30_000)
    made, after, _ = settle(table, held, minute(3) + 40_000, 9)
    assert (made, after.skipped, after.missed) == ([minute(1), minute(2), minute(3)], 0, 0)


# -- backfill


def test_a_backfill_makes_each_in_its_range_and_ends() -> None:
    # Both ends count; each has its turn, now, whatever its time was.
    table = table_of(MINUTELY, SKIP, jitter_ms=5_000)
    standing = at(minute(1), live=f"{minute(4)}/4", catch_ms=NOON_MS + DAY)
    made = []
    while standing.cursor_ms:
        step = backfill_step(table, standing, NOON_MS + DAY + 5)
        assert (step.kind, step.missed, step.catch_ms) == ("f", 0, NOON_MS + DAY)
        assert step.look_ms == step.at_ms == NOON_MS + DAY + 5
        made.append(step.occurrence_ms)
        standing = take(standing, step, NOON_MS + DAY + 5)
    assert (made, standing.mode) == ([minute(n) for n in range(1, 5)], Mode.ENDED)


@pytest.mark.parametrize("cursor", [0, minute(5)])
def test_a_backfill_past_its_range_ends(cursor: int) -> None:
    # The rule was replaced meanwhile: its cursor may lie anywhere.
    step = backfill_step(table_of(MINUTELY), at(cursor, live=f"{minute(4)}/4", catch_ms=1), NOON_MS + DAY)
    assert (step.kind, step.next_ms, step.occurrence_ms) == ("p", 0, 0)


def test_max_runs_does_not_cut_a_backfill() -> None:
    # Its number was counted and promised when it began.
    table = table_of(Cron("* * * * *", max_runs=2))
    step = backfill_step(table, at(minute(2), made=1, live=f"{minute(4)}/4", catch_ms=1), NOON_MS + DAY)
    assert step.kind == "f"
