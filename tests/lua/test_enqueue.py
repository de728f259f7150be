"""enqueue: nothing -> waiting or ready."""

from __future__ import annotations

import pytest

from redisched.ids import from_key, mint
from redisched.keys import encode_tenant, lane_of
from tests.support.floor import Floor, parcel, record_of, short_lanes

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("when", "state", "due"),
    [
        ("+0", "ready", {}),
        ("0", "ready", {}),
        ("1", "ready", {}),
        ("+1", "waiting", {"a": 1}),
        ("+86400000", "waiting", {"a": 86_400_000}),
        ("9999999999999", "waiting", None),
    ],
)
async def test_a_job_goes_where_its_time_says(floor: Floor, when: str, state: str, due: dict[str, int]) -> None:
    # Tries to lose a job between "now" and "later", and to store a time that is not the one asked for.
    assert await floor.enqueue("a", when=when) == [1]
    assert await floor.where("a") == state
    assert await floor.record("a") == record_of("acme")
    assert await floor.due() == ({"a": 9_999_999_999_999 - floor.now} if due is None else due)
    assert await floor.totals() == {"enqueued": 1}


async def test_an_absolute_time_is_kept_to_the_millisecond(floor: Floor) -> None:
    # Tries to round a time in Lua's numbers, or to be early or late by one at the border.
    await floor.enqueue("b", when=str(floor.now + 1))
    assert await floor.due() == {"b": 1}
    await floor.enqueue("a", when=str(floor.now))
    assert await floor.where("a") == "ready"


async def test_a_batch_goes_to_many_places_at_once(floor: Floor) -> None:
    # Tries to mix up the jobs of one call: tenants, priorities and times in one batch.
    fresh = [
        *parcel("a1", "a"),
        *parcel("a2", "a", "high"),
        *parcel("a3", "a", "low", "+500"),
        *parcel("b1", "b", when="+100"),
        *parcel("b2", "b", "low"),
        *parcel("b3", "b", "low"),
    ]
    assert await floor.call("enqueue", floor.now, 0, 2_000, *fresh) == [6]
    assert await floor.due() == {"b1": 100, "a3": 500}
    ringed = await floor.client.hgetall(floor.keys["ringed"])
    assert {tenant: set(state.decode()) for tenant, state in ringed.items()} == {
        b"a": set("nh 0"),
        b"b": set("l 0"),
    }
    assert await floor.client.lrange(floor.keys["ring"], 0, -1) == [b"a", b"b"]
    assert await floor.client.hgetall(floor.keys["tally"]) == {b"w a": b"1", b"w b": b"1"}


@pytest.mark.parametrize("state", ["waiting", "ready", "overflow", "running"])
@short_lanes
async def test_an_id_that_lives_is_left_as_it_is(floor: Floor, state: str) -> None:
    # Tries to make a second job of one id, or to overwrite the first, wherever it lives.
    if state == "overflow":
        await floor.enqueue("x1", "x2", "x3", "a")
        await floor.promote()
    elif state == "running":
        await floor.running("a")
    else:
        await floor.enqueue("a", when="+9" if state == "waiting" else "+0")
    before, enqueued = await floor.picture(), (await floor.totals())["enqueued"]
    assert await floor.enqueue("a", max_attempts=9, when="+5000") == [0, 0]
    assert await floor.picture() == before
    assert await floor.enqueue("new", "a", "new2", when="+5000") == [2, 1]
    assert await floor.where("a") == state
    assert (await floor.totals())["enqueued"] == enqueued + 2


async def test_an_id_twice_in_one_call_is_one_job(floor: Floor) -> None:
    # Tries to place one record twice: two callers with the same key, coalesced into one batch.
    assert await floor.enqueue("a", "b", "a", "a") == [2, 2, 3]
    assert await floor.claim_ids() == ["a", "b"]


@pytest.mark.parametrize("when", ["+0", "+700"])
async def test_the_key_of_a_dead_letter_is_free_again(floor: Floor, when: str) -> None:
    # Tries to leave a letter beside the new job, or its count in the tally; others' letters must stay.
    await floor.dead("a", "b")
    assert await floor.enqueue("c", "a", when=when, max_attempts=3) == [2]
    assert await floor.where("a") == ("waiting" if when == "+700" else "ready")
    assert await floor.record("a") == record_of("acme", 3)
    assert [f[b"id"] for _, f in await floor.client.xrange(floor.keys["dead"])] == [b"b"]


async def test_a_dead_record_that_cannot_be_read_stores_nothing_by_half(floor: Floor) -> None:
    # Tries to break the script after its first write: jobs stored, but in no place.
    await floor.set_record("a", "d no header at all")
    assert await floor.enqueue("b", "a", "c") == [3]
    assert await floor.claim_ids() == ["b", "a", "c"]


async def test_a_dead_letter_of_another_tenant_is_counted_off_its_own(floor: Floor) -> None:
    # Tries to take the letter off the wrong tenant's tally: an id that two tenants used.
    await floor.dead("a", tenant="old")
    assert await floor.enqueue("a", tenant="new") == [1]
    assert await floor.client.hgetall(floor.keys["tally"]) == {}


async def test_a_repeat_changes_nothing(floor: Floor) -> None:
    # Tries to store twice what was sent twice, and to let a late copy in after its job has gone.
    await floor.enqueue("old")
    args = [floor.now, 0, 2_000, *parcel("a"), *parcel("old"), *parcel("b", when="+50")]
    assert await floor.check_repeats("enqueue", args, 1) == [2, 1]


async def test_a_late_copy_does_not_bring_a_finished_job_back(floor: Floor) -> None:
    # Tries to run a job again: its enqueue was stuck in a dead connection while a copy of it ran and ended.
    caller = floor.new_caller()
    assert await floor.enqueue("a", caller=caller, seq=1) == [1]
    await floor.end("complete", await floor.claim())
    assert await floor.enqueue("a", caller=caller, seq=1) == [1]
    assert await floor.where("a") == "gone"
    assert await floor.enqueue("a", caller=caller, seq=2) == [1], "a new call may use the id again"
    assert await floor.where("a") == "ready"


async def test_callers_do_not_share_numbers(floor: Floor) -> None:
    # Tries to answer one caller with what another got under the same number.
    one, two = floor.new_caller(), floor.new_caller()
    assert await floor.enqueue("a", caller=one, seq=5) == [1]
    assert await floor.enqueue("a", "b", caller=two, seq=5) == [1, 0]
    assert await floor.enqueue("c", caller=two, seq=6) == [1]


async def test_new_work_queues_behind_what_is_overdue(floor: Floor) -> None:
    # Tries to overtake: a job that became due earlier and was not promoted yet must run first.
    await floor.enqueue("first", when="+100")
    floor.clock.advance(0.1)
    await floor.enqueue("second")
    assert await floor.due() == {"first": 0, "second": 0}
    await floor.promote()
    assert await floor.claim_ids() == ["first", "second"]


async def test_work_to_come_does_not_hold_up_new_work(floor: Floor) -> None:
    # Tries to send due work the long way because something waits for tomorrow.
    await floor.enqueue("tomorrow", when="+86400000")
    await floor.enqueue("now")
    assert await floor.claim_ids() == ["now"]


@short_lanes
async def test_a_full_lane_sends_the_rest_to_wait(floor: Floor) -> None:
    # Tries to grow a lane past its bound, within one call and over several; other lanes keep their room.
    await floor.enqueue("a1", "a2")
    assert await floor.enqueue("a3", "a4", "a5") == [3]
    assert await floor.client.xlen(floor.keys.lane("acme")) == 3
    assert list(await floor.due()) == ["a4", "a5"]
    await floor.promote()
    await floor.enqueue("h1", "h2", "h3", "h4", priority="high")
    await floor.enqueue("a6")
    assert await floor.client.xlen(floor.keys.lane("acme:h")) == 3
    assert list(await floor.due()) == ["a6", "h4"], "at one instant by lane, then by id"


@short_lanes
async def test_nothing_enters_a_lane_whose_overflow_holds_work(floor: Floor) -> None:
    # Tries to overtake the overflow: the lane has room again, but older jobs wait beside it.
    await floor.enqueue("a1", "a2", "a3", "a4")
    await floor.promote()
    assert await floor.claim_ids(2) == ["a1", "a2"]
    await floor.enqueue("a5")
    assert await floor.where("a5") == "waiting"
    await floor.promote()
    assert await floor.claim_ids() == ["a3", "a4", "a5"]
    await floor.enqueue("a6")
    assert await floor.where("a6") == "ready", "once the overflow is empty the lane is open again"


async def test_sleepers_are_woken_when_it_matters(floor: Floor) -> None:
    # Tries to leave workers or schedulers asleep, or to ring without end.
    bell, alarm = floor.keys["bell"], floor.keys["alarm"]

    async def rung() -> list[int]:
        return [await floor.client.llen(bell), await floor.client.llen(alarm)]

    await floor.enqueue("a1")
    assert await rung() == [1, 0]
    await floor.enqueue("a2")
    assert await rung() == [1, 0], "the lane held work already"
    await floor.enqueue("later", when="+5000")
    assert await rung() == [1, 1]
    await floor.enqueue("latest", when="+9000")
    assert await rung() == [1, 1], "somebody is awake before that"
    for n in range(40):
        await floor.enqueue(f"b{n}", tenant=f"t{n}")
        await floor.enqueue(f"e{n}", when=f"+{4000 - n}")
    assert await rung() == [16, 16]


ODD_TENANTS = [
    "{x}",
    "}{",
    "a:h",
    "a:l",
    "a/b",
    "a#1@w",
    "50%",
    "%7B",
    " ",
    "a\nb",
    "w acme",
    "\0",
    "ü🎈",
    "🎈" * 128,
    ".." * 64,
]


@pytest.mark.parametrize("tenant", ODD_TENANTS, ids=lambda tenant: encode_tenant(tenant)[:20])
async def test_a_tenants_name_is_data(floor: Floor, tenant: str) -> None:
    # Tries to reach another tenant's or shard's keys by a name, through every place a job can be in.
    key_id, plain_id = from_key(tenant, f"key of {tenant}"), mint()
    await floor.enqueue("other", tenant="a", when="+3000")
    for priority, job_id in (("high", key_id), ("low", plain_id)):
        assert await floor.enqueue(job_id, tenant=tenant, priority=priority) == [1]
        assert await floor.enqueue(job_id, tenant=tenant, priority=priority) == [0, 0]
        assert await floor.client.exists(floor.keys.lane(lane_of(tenant, priority)))
    jobs = await floor.claim()
    assert [job.id for job in jobs] == [key_id, plain_id]
    assert await floor.end("retry", jobs) == [2]
    floor.clock.advance(1)
    await floor.promote()
    jobs = await floor.claim()
    assert await floor.end("bury", jobs) == [2]
    assert await floor.call("replay", floor.now, key_id, plain_id) == [2]
    await floor.promote()
    jobs = await floor.claim()
    assert await floor.end("complete", jobs[:1]) == [1]
    assert await floor.call("cancel", floor.now, plain_id, jobs[1].member, 1_000, 10) == [b"cancelled"]
    assert await floor.client.hgetall(floor.keys["tally"]) == {b"w a": b"1"}


async def test_ids_of_keys_differ_by_tenant_and_repeat(floor: Floor) -> None:
    # Tries to give one tenant the job of another by the same key, or by shifting the border of the two.
    ids = {from_key(t, k) for t, k in [("a", "k"), ("b", "k"), ("ak", ""), ("", "ak"), ("a", "K")]}
    assert len(ids) == 5
    assert from_key("a", "k") == from_key("a", "k")
    assert await floor.enqueue(*sorted(ids), when="+1") == [5]
