"""The ledger: tries to show a supervisor half a lease, to mark the wrong one lost, and to lose a slot."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, precondition, rule

from redisched.worker.ledger import (
    FREE,
    HELD,
    LOST,
    MAX_MEMBER,
    SLOT_BYTES,
    STARTED,
    Entry,
    Ledger,
    shared_file,
    size_for,
    slots_for,
)

OLD, YOUNG = "k-0123456789abcdefghijklmn#1795000000000000@host:1:aaaa", "0123456789abcd#1795000000000001@host:1:aaaa"

CHILD = """
import sys
from redisched.worker.ledger import Ledger
ledger = Ledger(4, int(sys.argv[1]))
for word in sys.stdin:
    verb, *rest = word.split()
    if verb == "take":
        print(ledger.take(int(rest[0]), rest[1], float(rest[2])), flush=True)
    elif verb == "start":
        print(ledger.start(int(rest[0]), float(rest[1])), flush=True)
    elif verb == "free":
        print(ledger.free(int(rest[0])), flush=True)
    elif verb == "lost":
        print(ledger.is_lost(int(rest[0])), flush=True)
"""


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    made = Ledger(4)
    yield made
    made.close()


def read(ledger: Ledger) -> list[Entry]:
    return list(ledger.entries())


def test_a_slot_says_what_is_held(ledger: Ledger) -> None:
    # Every field through the packed bytes and back; the largest shard and an odd time among them.
    slot = ledger.take(1023, YOUNG, 12.5)
    assert read(ledger) == [Entry(slot, HELD, 1023, YOUNG, 12.5, 0.0)]
    ledger.start(slot, 99.25)
    assert read(ledger) == [Entry(slot, STARTED, 1023, YOUNG, 12.5, 99.25)]
    assert read(ledger)[0].job_id == "0123456789abcd"
    ledger.free(slot)
    assert read(ledger) == []


def test_a_job_id_may_hold_the_mark_of_a_fence() -> None:
    # The fence stands behind the last #, as in the scripts.
    assert Entry(0, HELD, 0, "a#b#7@w", 0, 0).job_id == "a#b"


def test_room_is_what_is_free_and_a_freed_slot_is_used_again(ledger: Ledger) -> None:
    # A slot that leaks makes the process stop claiming after some days.
    for round_ in range(10):
        slots = [ledger.take(0, f"j{n}#{round_}@w", 1.0) for n in range(4)]
        assert sorted(slots) == [0, 1, 2, 3]
        assert ledger.room == 0
        for slot in slots:
            ledger.free(slot)
        assert ledger.room == 4
    for n in range(4):
        ledger.take(0, f"j{n}#1@w", 1.0)
    with pytest.raises(IndexError):
        ledger.take(0, "j5#1@w", 1.0)


def test_a_shorter_lease_leaves_nothing_of_a_longer_one(ledger: Ledger) -> None:
    # The rest of the old name stands behind the new one in memory.
    slot = ledger.take(0, OLD, 1.0)
    ledger.start(slot, 50.0)
    ledger.free(slot)
    assert ledger.take(0, YOUNG, 2.0) == slot
    assert read(ledger) == [Entry(slot, HELD, 0, YOUNG, 2.0, 0.0)]


def test_a_lease_that_is_longer_than_a_slot_is_our_bug(ledger: Ledger) -> None:
    # It would run into the next slot; the longest that fits must not.
    first, second = ledger.take(0, "a" * MAX_MEMBER, 1.0), ledger.take(0, YOUNG, 2.0)
    assert {first, second} == {0, 1}
    assert [len(entry.member) for entry in read(ledger)] == [MAX_MEMBER, len(YOUNG)]
    with pytest.raises(AssertionError):
        ledger.take(0, "a" * (MAX_MEMBER + 1), 1.0)
    assert [entry.member for entry in read(ledger)] == ["a" * MAX_MEMBER, YOUNG]


# -- lost


def test_a_lost_lease_is_seen_by_its_process(ledger: Ledger) -> None:
    # Starting a job whose lease was lost meanwhile must not hide that.
    slot = ledger.take(0, YOUNG, 1.0)
    ledger.mark_lost(read(ledger)[0])
    assert ledger.is_lost(slot)
    ledger.start(slot, 5.0)
    assert ledger.is_lost(slot)
    assert [entry.state for entry in read(ledger)] == [LOST]


@pytest.mark.parametrize("next_one", [None, YOUNG, OLD + "bb", OLD[:-1]], ids=["free", "another", "longer", "shorter"])
def test_only_the_lease_that_was_read_is_marked(ledger: Ledger, next_one: str | None) -> None:
    # Between a supervisor's read and its mark the slot was freed, and perhaps taken by another job.
    slot = ledger.take(0, OLD, 1.0)
    (entry,) = read(ledger)
    ledger.free(slot)
    if next_one is not None:
        assert ledger.take(0, next_one, 2.0) == slot
    ledger.mark_lost(entry)
    assert not ledger.is_lost(slot)


def test_a_lease_of_a_host_with_any_name_can_be_lost(ledger: Ledger) -> None:
    # A host's name may hold more than ASCII: its length in characters is not its length in bytes.
    slot = ledger.take(0, "0123456789abcd#7@büro:1:aaaa", 1.0)
    ledger.mark_lost(read(ledger)[0])
    assert ledger.is_lost(slot)


def test_a_slot_that_was_lost_begins_anew(ledger: Ledger) -> None:
    # A LOST that stays would cancel the next job in the slot.
    slot = ledger.take(0, OLD, 1.0)
    ledger.mark_lost(read(ledger)[0])
    ledger.free(slot)
    assert ledger.take(0, YOUNG, 2.0) == slot
    assert not ledger.is_lost(slot)


# -- torn reads


class Interrupted(mmap.mmap):
    """Memory that lets somebody else write before the n-th read of it."""

    before: dict[int, Callable[[], Any]]
    reads: int

    def __getitem__(self, at: Any) -> Any:
        self.reads += 1
        if act := self.before.pop(self.reads, None):
            act()
        return super().__getitem__(at)


@pytest.mark.parametrize("names", [(OLD, YOUNG), (YOUNG, OLD)], ids=["long-short", "short-long"])
@pytest.mark.parametrize("reads", [1, 2, 3])
@pytest.mark.parametrize("again", [True, False], ids=["taken-again", "freed"])
def test_a_read_in_the_middle_of_a_change_is_whole_or_nothing(names: tuple[str, str], reads: int, again: bool) -> None:
    # The process frees the slot and takes it for another job between any two reads of the supervisor. Half of
    # one name and half of another is a lease that nobody holds: its renewal fails, and a live job is marked lost.
    fd = shared_file(size_for(1))
    process, supervisor = Ledger(1, fd), Ledger(1, fd)
    memory = Interrupted(fd, size_for(1))
    memory.reads, memory.before = 0, {}
    supervisor._map.close()
    supervisor._map = memory
    slot = process.take(7, names[0], 1.0)

    def change() -> None:
        process.free(slot)
        if again:
            process.take(8, names[1], 2.0)

    memory.before[reads] = change
    seen = read(supervisor)
    assert not memory.before, "the change happened"
    whole = {(7, names[0], 1.0), (8, names[1], 2.0)}
    assert {(entry.shard, entry.member, entry.since) for entry in seen} <= whole
    for entry in seen:
        if entry.member != names[1]:
            supervisor.mark_lost(entry)
    assert not again or not process.is_lost(slot)
    for one in (process, supervisor):
        one.close()
    os.close(fd)


def test_a_slot_that_is_being_filled_is_not_seen() -> None:
    # The state is written last: a supervisor that looks before must see nothing.
    ledger = Ledger(1)
    seen: list[list[Entry]] = []

    class Watched(mmap.mmap):
        def __setitem__(self, at: Any, value: Any) -> None:
            seen.append(read(ledger))
            super().__setitem__(at, value)

    ledger._map.close()
    ledger._map = Watched(-1, SLOT_BYTES)
    ledger.take(0, YOUNG, 1.0)
    assert seen == [[], []]
    assert len(read(ledger)) == 1


# -- two processes


def test_two_processes_share_a_ledger_through_a_file_without_a_name() -> None:
    # What the child takes is what its supervisor sees, at once, and also after the child was killed.
    fd = shared_file(size_for(4))
    ledger = Ledger(4, fd)
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(fd)],
        pass_fds=[fd],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    )
    assert child.stdin is not None
    assert child.stdout is not None

    def tell(words: str) -> str:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(words + "\n")
        return child.stdout.readline().strip()

    try:
        first, second = int(tell(f"take 3 {OLD} 1.5")), int(tell(f"take 1 {YOUNG} 2.5"))
        tell(f"start {second} 77.0")
        assert read(ledger) == [Entry(first, HELD, 3, OLD, 1.5, 0.0), Entry(second, STARTED, 1, YOUNG, 2.5, 77.0)]
        ledger.mark_lost(read(ledger)[0])
        assert (tell(f"lost {first}"), tell(f"lost {second}")) == ("True", "False")
        tell(f"free {first}")
        child.kill()
        child.wait(10)
        assert [entry.member for entry in read(ledger)] == [YOUNG]
    finally:
        child.kill()
        child.wait(10)
        child.stdin.close()
        child.stdout.close()
        ledger.close()
        os.close(fd)


def test_a_shared_file_has_no_name_and_its_size() -> None:
    # A name would outlive a killed host.
    fd = shared_file(size_for(3))
    assert os.fstat(fd).st_size == 3 * SLOT_BYTES
    assert os.fstat(fd).st_nlink == 0
    os.close(fd)


@pytest.mark.parametrize(("concurrency", "batch"), [(1, 256), (200, 256), (10_000, 1)])
def test_there_is_room_for_all_that_a_process_may_hold(concurrency: int, batch: int) -> None:
    # Running, fetched ahead while quick, and as much again that waits to be acknowledged.
    assert slots_for(concurrency, batch) >= 2 * concurrency + 2 * concurrency + batch


# -- any order of calls


class Anything(RuleBasedStateMachine):
    """Takes, starts, loses and frees in any order, beside a dictionary that does the same."""

    slots = Bundle("slots")

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger(3)
        self.model: dict[int, Entry] = {}
        self.fence = 0

    def teardown(self) -> None:
        self.ledger.close()

    @precondition(lambda self: len(self.model) < 3)
    @rule(target=slots, shard=st.integers(0, 1023), job=st.sampled_from(["a", "k-aaaaaaaaaaaaaaaaaaaaaaaa"]))
    def take(self, shard: int, job: str) -> int:
        self.fence += 1
        member = f"{job}#{self.fence}@w"
        slot = self.ledger.take(shard, member, float(self.fence))
        assert slot not in self.model
        self.model[slot] = Entry(slot, HELD, shard, member, float(self.fence), 0.0)
        return slot

    @rule(slot=slots, deadline=st.sampled_from([0.0, 9.5]))
    def start(self, slot: int, deadline: float) -> None:
        old = self.model[slot]
        self.ledger.start(slot, deadline)
        state = STARTED if old.state == HELD else old.state
        self.model[slot] = Entry(slot, state, old.shard, old.member, old.since, deadline or old.deadline)

    @rule(slot=slots)
    def lose(self, slot: int) -> None:
        old = self.model[slot]
        self.ledger.mark_lost(self.entry(slot))
        self.model[slot] = Entry(slot, LOST, old.shard, old.member, old.since, old.deadline)

    @rule(slot=consumes(slots))
    def free(self, slot: int) -> None:
        gone = self.entry(slot)
        del self.model[slot]
        self.ledger.free(slot)
        self.ledger.mark_lost(gone)
        assert self.ledger._map[slot * SLOT_BYTES] == FREE

    def entry(self, slot: int) -> Entry:
        """As the supervisor has read it."""
        return next(entry for entry in read(self.ledger) if entry.slot == slot)

    @invariant()
    def the_same(self) -> None:
        assert read(self.ledger) == [self.model[slot] for slot in sorted(self.model)]
        assert self.ledger.room == 3 - len(self.model)


TestAnything = Anything.TestCase
