"""progress: changes no state. How far a run is, while its lease is held."""

from __future__ import annotations

import pytest

from tests.support.floor import LEASE_MS, Floor

pytestmark = pytest.mark.anyio


async def test_a_held_lease_may_note(floor: Floor) -> None:
    # Tries to keep a note for ever, or to touch anything but the note.
    (job,) = await floor.running("a")
    before = await floor.picture()
    for note in ("10 %", "ü\n\0", ""):
        for _ in range(2):
            assert await floor.call("progress", job.member, "a", note, 5_000) == [b"noted"]
            assert await floor.picture() == before | {floor.keys.progress("a"): note.encode()}
    assert 0 < await floor.client.pttl(floor.keys.progress("a")) <= 5_000


@pytest.mark.parametrize("end", ["complete", "retry", "bury", "release", "recover", "cancel", "forge", "empty"])
async def test_a_lost_lease_notes_nothing(floor: Floor, end: str) -> None:
    # Tries to write over the note of a newer run, or to leave one for a job that is gone.
    lease = "a#1@w1"
    if end != "empty":
        (job,) = await floor.running("a")
        lease = job.member
    if end == "recover":
        floor.clock.advance(LEASE_MS / 1000)
        await floor.store.recover(0, 10)
    elif end == "cancel":
        await floor.store.cancel(0, "a", lease, 1_000)
    elif end == "forge":
        lease += "x"
    elif end != "empty":
        await floor.end(end, [job])
    before = await floor.picture()
    assert await floor.call("progress", lease, "a", "late", 5_000) == [b"stale"]
    assert await floor.store.progress(0, lease, "a", "late", 5_000) is False
    assert await floor.picture() == before
