"""The ledger: what a worker process holds, in memory that its supervisor can read.

A handler may block the loop, hold the GIL or end the process; leases must neither be lost to the
first two nor kept after the last. So the process writes each job it takes into a slot of shared
memory, and the supervisor renews from there without asking, and gives back from there when the
process is dead. The only thing a supervisor writes is LOST, when a renewal was refused.

A slot's state is written last when it is filled and first when it is freed, and every filling has
a number: a reader that finds another number after its reading than before has read halves of two
jobs, and drops them. "Lost" is said of a number, not of a slot, so a mark that comes after the slot
was given to another job means nothing.
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field

FREE, HELD, STARTED, LOST = 0, 1, 2, 3

_SLOT = struct.Struct("<xxHHxxdd")  # (state), shard, member's length, held since, deadline (0: none)
_NUMBERS = struct.Struct("<II")  # number of the filling, number that was marked lost
_NUMBERS_AT = _SLOT.size
_MEMBER_AT = _SLOT.size + _NUMBERS.size
_DEADLINE_AT = _SLOT.size - 8
SLOT_BYTES = 384
MAX_MEMBER = SLOT_BYTES - _MEMBER_AT


@dataclass(frozen=True, slots=True)
class Entry:
    """A slot as the supervisor reads it. Times are of the monotonic clock, which processes of a host share."""

    slot: int
    state: int
    shard: int
    member: str
    since: float
    deadline: float
    number: int = field(default=0, compare=False)

    @property
    def job_id(self) -> str:
        return self.member.rpartition("#")[0]


class Ledger:
    def __init__(self, slots: int, fd: int | None = None) -> None:
        """`fd`: an open file of `size_for(slots)` bytes that another process maps too."""
        self.slots = slots
        self._map = mmap.mmap(fd if fd is not None else -1, size_for(slots))
        self._free = list(range(slots - 1, -1, -1))

    @property
    def room(self) -> int:
        return len(self._free)

    def take(self, shard: int, member: str, now_s: float) -> int:
        slot = self._free.pop()
        at = slot * SLOT_BYTES
        name = member.encode()
        assert len(name) <= MAX_MEMBER, "a lease's name is longer than a slot"
        number, _ = _NUMBERS.unpack_from(self._map, at + _NUMBERS_AT)
        # never 0, which stands for "none was lost"
        _NUMBERS.pack_into(self._map, at + _NUMBERS_AT, number % 0xFFFFFFFF + 1, 0)
        _SLOT.pack_into(self._map, at, shard, len(name), now_s, 0.0)
        self._map[at + _MEMBER_AT : at + _MEMBER_AT + len(name)] = name
        self._map[at] = HELD
        return slot

    def start(self, slot: int, deadline_s: float) -> None:
        at = slot * SLOT_BYTES
        if deadline_s:
            struct.pack_into("<d", self._map, at + _DEADLINE_AT, deadline_s)
        self._map[at] = STARTED

    def free(self, slot: int) -> None:
        self._map[slot * SLOT_BYTES] = FREE
        self._free.append(slot)

    def is_lost(self, slot: int) -> bool:
        number, lost = _NUMBERS.unpack_from(self._map, slot * SLOT_BYTES + _NUMBERS_AT)
        return bool(number == lost) and self._map[slot * SLOT_BYTES] != FREE

    # -- the supervisor's side

    def entries(self) -> Iterator[Entry]:
        for slot in range(self.slots):
            if self._map[slot * SLOT_BYTES] != FREE and (entry := self._read(slot)) is not None:
                yield entry

    def _read(self, slot: int) -> Entry | None:
        at = slot * SLOT_BYTES
        number, lost = _NUMBERS.unpack_from(self._map, at + _NUMBERS_AT)
        state = self._map[at]
        shard, length, since, deadline = _SLOT.unpack_from(self._map, at)
        member = self._map[at + _MEMBER_AT : at + _MEMBER_AT + length]
        if state == FREE or _NUMBERS.unpack_from(self._map, at + _NUMBERS_AT)[0] != number:
            return None
        state = LOST if lost == number else state
        return Entry(slot, state, shard, member.decode("utf-8", "replace"), since, deadline, number)

    def mark_lost(self, entry: Entry) -> None:
        if self._map.closed:
            return  # its process died, and was seen to, while the renewal was on its way
        struct.pack_into("<I", self._map, entry.slot * SLOT_BYTES + _NUMBERS_AT + 4, entry.number)

    def close(self) -> None:
        self._map.close()


def size_for(slots: int) -> int:
    return slots * SLOT_BYTES


def slots_for(concurrency: int, batch: int) -> int:
    """Jobs a process may hold: running, fetched ahead, and finished but not yet acknowledged."""
    return 4 * concurrency + 2 * batch


def shared_file(size: int) -> int:
    """A file without a name, to be mapped here and in a child. It is gone when both are."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("redisched-ledger")
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.ftruncate(fd, size)
    return fd
