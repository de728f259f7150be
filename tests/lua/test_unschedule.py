"""unschedule: removes a schedule; what runs, runs on."""

from __future__ import annotations

import pytest

from tests.lua.test_servers import full, real_servers
from tests.support.floor import LEASE_MS, LEASE_VERBS, MADE, MOVED, PLAN, Floor

pytestmark = pytest.mark.anyio


async def test_nothing_of_it_stays(floor: Floor) -> None:
    # Tries to leave its state, its backfill, its history or its tenant's pace behind.
    await floor.plan()
    await floor.end("complete", [await floor.run_occurrence()])
    await floor.call("backfill", floor.now, 0, PLAN, 1, 2, 2)
    assert await floor.store.unschedule(0, floor.caller, PLAN) is True
    left = {key.removeprefix(floor.keys.tag) for key in await floor.picture() if key.startswith(floor.keys.tag)}
    assert {key for key in left if not key.startswith(("rate:", "call:"))} == {"totals", "fence", "bell", "alarm"}
    assert (await floor.totals())["unscheduled"] == 1


async def test_its_neighbours_stay(floor: Floor) -> None:
    # Tries to take schedules whose names begin alike, or the pace of a tenant that has more of them.
    names = ["acme/n", "acme/nightly", "acme/nightly2", "acme2/nightly", "default/nightly"]
    await floor.plan(*names)
    for name in names:
        assert await floor.fire(name) == MADE
    assert await floor.store.unschedule(0, floor.caller, "acme/nightly") is True
    names.remove("acme/nightly")
    assert sorted(await floor.client.hkeys(floor.keys["planned"])) == sorted(name.encode() for name in names)
    assert sorted(await floor.client.hkeys(floor.keys["pace"])) == [b"acme", b"acme2", b"default"]


async def test_what_is_not_there_cannot_be_removed(floor: Floor) -> None:
    # Tries to count, or to write, for a schedule that never was or went before.
    await floor.plan()
    before = await floor.picture()
    assert await floor.call("unschedule", 0, "acme/never") == [0]
    assert await floor.picture() == before
    assert await floor.call("unschedule", 0, PLAN) == [1]
    before = await floor.picture()
    assert await floor.call("unschedule", 0, PLAN) == [0]
    assert await floor.picture() == before


async def test_sent_twice_it_answers_the_same(floor: Floor) -> None:
    # Tries to say "was not there" to a caller whose first reply was lost, or to remove one made anew since.
    await floor.plan()
    assert await floor.check_repeats("unschedule", [0, PLAN], 0) == [1]


@pytest.mark.parametrize("missing", ["plan", "planned", "roster"])
async def test_half_of_a_schedule_can_be_removed(floor: Floor, missing: str) -> None:
    # Tries to keep what a half-restored backup left for ever.
    await floor.plan()
    await (floor.client.zrem if missing == "roster" else floor.client.hdel)(floor.keys[missing], PLAN)
    assert await floor.store.unschedule(0, floor.caller, PLAN) is True
    assert not await floor.client.exists(*(floor.keys[name] for name in ("plan", "planned", "roster", "plans")))


@pytest.mark.parametrize("verb", [*LEASE_VERBS, "recover", "cancel", "stale"])
async def test_what_runs_ends_as_usual_and_writes_no_history(floor: Floor, verb: str) -> None:
    # Tries to stop a running occurrence, to fail at its end, or to keep a history that nobody will ever remove.
    await floor.plan()
    job = await floor.run_occurrence(max_attempts=1 if verb == "recover" else 5)
    await floor.store.unschedule(0, floor.caller, PLAN)
    assert await floor.where(job.id) == "running"
    if verb == "recover":
        floor.clock.advance(LEASE_MS / 1000)
        assert await floor.store.recover(0, 10) == (1, 1, -1)
    elif verb == "cancel":
        assert await floor.store.cancel(0, job.id, job.member, 1_000) == "cancelled"
    elif verb == "stale":
        await floor.store.stale(0, [job.id, b"1 w1 1 2 stale 0\n"])
    else:
        assert await floor.end(verb, [job]) == [1]
    assert not await floor.client.exists(floor.keys.history(PLAN), floor.keys["planned"], floor.keys["plans"])


async def test_a_step_that_is_under_way_makes_nothing(floor: Floor) -> None:
    # Tries to fire, or to bring back, a schedule that was deleted between peek and fire.
    await floor.plan()
    steps = [await floor.step(), await floor.step(kind="p"), await floor.step(kind="t"), await floor.step(kind="x")]
    await floor.store.unschedule(0, floor.caller, PLAN)
    before = await floor.picture()
    assert (await floor.fire_steps(*steps))[:3] == [MOVED] * 3
    assert await floor.picture() == before


@real_servers
async def test_a_full_server_lets_it_go(floor: Floor) -> None:
    # Tries to keep schedules on a server that is over its limit.
    await floor.plan()
    async with full(floor):
        assert await floor.store.unschedule(0, floor.caller, PLAN) is True
