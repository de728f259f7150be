"""What a schedule does after downtime (`Misfire`) and when runs overlap (`Overlap`). Floor 3; frozen values.

Misfire.SKIP  Misfire.RUN_ONCE  Misfire.run_all(max=24)
Overlap.SKIP  Overlap.ALLOW  Overlap.allow(max_running=3)  Overlap.QUEUE  Overlap.CANCEL
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from redisched.errors import InvalidSchedule

MAX_CATCH_UP: Final = 10_000
MAX_RUNNING: Final = 64


@dataclass(frozen=True, slots=True)
class Misfire:
    """What becomes of occurrences that nobody made in time, because no scheduler ran or the schedule was paused."""

    kind: str  # skip, once or all
    max: int = 0  # all: how many of them, the newest

    SKIP: ClassVar[Misfire]
    """None of them: it goes on with the next time."""
    RUN_ONCE: ClassVar[Misfire]
    """One for all of them: the newest."""

    @staticmethod
    def run_all(max: int) -> Misfire:  # noqa: A002 - the word of the public surface
        """Each of them, the newest `max`, the oldest of these first."""
        if not isinstance(max, int) or isinstance(max, bool) or not 1 <= max <= MAX_CATCH_UP:
            raise InvalidSchedule(f"Misfire.run_all(max=...) is 1 to {MAX_CATCH_UP:,}, not {max!r}")
        return Misfire("all", max)

    @property
    def keep(self) -> int:
        """How many of those missed may still be made."""
        return self.max if self.kind == "all" else 1

    def __str__(self) -> str:
        return f"all:{self.max}" if self.kind == "all" else self.kind

    @staticmethod
    def parse(text: str) -> Misfire:
        """`skip`, `once` or `all:24`."""
        kind, _, count = text.partition(":")
        if kind == "all" and count.isascii() and count.isdigit():
            return Misfire.run_all(int(count))
        if text not in ("skip", "once"):
            raise InvalidSchedule(f"misfire is skip, once or all:24 (the newest 24), not {text!r}")
        return Misfire(text)


Misfire.SKIP = Misfire("skip")
Misfire.RUN_ONCE = Misfire("once")


@dataclass(frozen=True, slots=True)
class Overlap:
    """What an occurrence does when its time comes and one before it still lives (runs, or is to be tried again)."""

    kind: str  # skip, allow, queue or cancel
    max_running: int = 0  # allow: how many may live at once; 0: any number

    SKIP: ClassVar[Overlap]
    """It is left out, and counted."""
    ALLOW: ClassVar[Overlap]
    """It runs beside the others."""
    QUEUE: ClassVar[Overlap]
    """It waits until the one before it ends; one may wait, more are left out."""
    CANCEL: ClassVar[Overlap]
    """It replaces the one before it, which is cancelled."""

    @staticmethod
    def allow(max_running: int) -> Overlap:
        """It runs beside the others, as long as these are fewer than `max_running`; otherwise it is left out."""
        if not isinstance(max_running, int) or isinstance(max_running, bool) or not 1 <= max_running <= MAX_RUNNING:
            raise InvalidSchedule(f"Overlap.allow(max_running=...) is 1 to {MAX_RUNNING}, not {max_running!r}")
        return Overlap("allow", max_running)

    @property
    def letter(self) -> str:
        """As `lua/fire.lua` knows it."""
        return self.kind[0]

    def __str__(self) -> str:
        return f"allow:{self.max_running}" if self.max_running else self.kind

    @staticmethod
    def parse(text: str) -> Overlap:
        """`skip`, `allow`, `allow:3`, `queue` or `cancel`."""
        kind, _, count = text.partition(":")
        if kind == "allow" and count.isascii() and count.isdigit():
            return Overlap.allow(int(count))
        if text not in ("skip", "allow", "queue", "cancel"):
            raise InvalidSchedule(f"overlap is skip, allow, allow:3 (at most 3 at once), queue or cancel, not {text!r}")
        return Overlap(text)


Overlap.SKIP = Overlap("skip")
Overlap.ALLOW = Overlap("allow")
Overlap.QUEUE = Overlap("queue")
Overlap.CANCEL = Overlap("cancel")
