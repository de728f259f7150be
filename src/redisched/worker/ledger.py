"""The ledger: what a worker process holds, in memory that its supervisor can read.

A handler may block the loop, hold the GIL or end the process; leases must neither be lost to the
first two nor kept after the last. So the process writes each job it takes into a slot of shared
memory, and the supervisor renews from there without asking, and gives back from there when the
process is dead. The only thing a supervisor writes is LOST, when a renewal was refused.

A slot's state is written last when it is filled and first when it is freed, so a reader never
takes half a slot for a whole one: at the worst it sees a job that is just being taken (harmless,
the lease is young) or one that just ended (harmless, the lease is gone).
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

FREE, HELD, STARTED, LOST = 0, 1, 2, 3

_SLOT = struct.Struct("<xHHdd")  # (state), shard, member's length, held since, deadline (0: none)
SLOT_BYTES = 384
MAX_MEMBER = SLOT_BYTES - _SLOT.size
_DEADLINE_AT = _SLOT.size - 8


@dataclass(frozen=True, slots=True)
class Entry:
    """A slot as the supervisor reads it. Times are of the monotonic clock, which processes of a host share."""

    slot: int
    state: int
    shard: int
    member: str
    since: float
    deadline: float

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
        _SLOT.pack_into(self._map, at, shard, len(name), now_s, 0.0)
        start = at + _SLOT.size
        self._map[start : start + len(name)] = name
        self._map[at] = HELD
        return slot

    def start(self, slot: int, deadline_s: float) -> None:
        at = slot * SLOT_BYTES
        if deadline_s:
            struct.pack_into("<d", self._map, at + _DEADLINE_AT, deadline_s)
        if self._map[at] == HELD:
            self._map[at] = STARTED

    def free(self, slot: int) -> None:
        self._map[slot * SLOT_BYTES] = FREE
        self._free.append(slot)

    def is_lost(self, slot: int) -> bool:
        return self._map[slot * SLOT_BYTES] == LOST

    # -- the supervisor's side

    def entries(self) -> Iterator[Entry]:
        for slot in range(self.slots):
            at = slot * SLOT_BYTES
            state = self._map[at]
            if state == FREE:
                continue
            shard, length, since, deadline = _SLOT.unpack_from(self._map, at)
            start = at + _SLOT.size
            member = self._map[start : start + length].decode("utf-8", "replace")
            if self._map[at] != FREE:
                yield Entry(slot, state, shard, member, since, deadline)

    def mark_lost(self, entry: Entry) -> None:
        at = entry.slot * SLOT_BYTES
        start = at + _SLOT.size
        # The slot may have been freed and taken again since it was read: then this lease is not the lost one.
        if self._map[start : start + len(entry.member)] == entry.member.encode() and self._map[at] != FREE:
            self._map[at] = LOST

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
