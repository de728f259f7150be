"""locate: changes nothing. Where a job is."""

from __future__ import annotations

import pytest

from tests.support.floor import Floor, short_lanes

pytestmark = pytest.mark.anyio


@short_lanes
async def test_every_place_has_a_word(floor: Floor) -> None:
    # Tries to confuse two places, or to change something by asking.
    (running,) = await floor.running("running")
    await floor.enqueue("waiting", when="+500")
    await floor.enqueue("r1", "r2", "r3", priority="low")
    await floor.enqueue("over", when=str(floor.now - 7), priority="low")
    await floor.promote()
    jobs = await floor.running("dead", "kept", "done")
    await floor.end("bury", jobs[:1])
    await floor.call("complete", *floor.end_args("complete", jobs[1:], 0, 1), 0, 60_000, b"value")
    ((entry, _),) = await floor.client.xrange(floor.keys["dead"])
    before = await floor.picture()
    answers = {
        "running": ("running", running.record, b""),
        "waiting": ("waiting", await floor.record("waiting"), str(floor.now + 500).encode()),
        "r1": ("ready", await floor.record("r1"), b"1"),
        "r3": ("ready", await floor.record("r3"), b"3"),
        "over": ("overflow", await floor.record("over"), str(floor.now - 7).encode()),
        "dead": ("dead", await floor.record("dead"), entry),
        "kept": ("kept", b"value", b""),
        "done": ("gone", b"", b""),
        "never": ("gone", b"", b""),
    }
    for job_id, answer in answers.items():
        assert await floor.store.locate(0, job_id) == answer
        assert await floor.store.locate(0, job_id) == answer
    assert await floor.picture() == before


async def test_a_living_job_hides_an_earlier_result(floor: Floor) -> None:
    # Tries to answer for a job with the result of an earlier one of the same key.
    jobs = await floor.running("a")
    await floor.call("complete", *floor.end_args("complete", jobs, 0, 1), 0, 60_000, b"old")
    await floor.enqueue("a", when="+5")
    assert await floor.where("a") == "waiting"


async def test_an_id_does_not_reach_into_another_place(floor: Floor) -> None:
    # Tries to find a job by a part of its member, or under another lane.
    await floor.enqueue("a/b", when="+5")
    await floor.enqueue("b", tenant="x", when="+5")
    assert [await floor.where(i) for i in ("a/b", "b", "/b", "acme/b", "a")] == [
        "waiting",
        "waiting",
        *["gone"] * 3,
    ]


@pytest.mark.parametrize("record", ["", "garbage", "q acme", "q acme 0 5 0 0"])
async def test_a_record_that_cannot_be_read(floor: Floor, record: str) -> None:
    # Tries to make the script stumble: who looks for a broken job must be shown what is there.
    await floor.set_record("a", record)
    assert await floor.store.locate(0, "a") == ("unreadable", record.encode(), b"")
    floor.expect("job a: no record", "job a is in no place")
