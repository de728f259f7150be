"""Where a schedule stands: the text that `lua/lib/plan.lua` keeps of it, opened. Pure."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

from redisched.errors import PayloadUndecodable

# As `open_plan` in lua/lib/plan.lua reads it.
_STATE = re.compile(
    rb"(\d+) (\d+) ([-pewgcd]) (\d+) (\d+) (\d+) (\d+) (\d+) (\d+) ([!-~]+)",
)


class Mode(enum.StrEnum):
    """What a schedule waits for. The letters are those of `lua/lib/plan.lua`."""

    ACTIVE = "-"
    PAUSED = "p"
    ENDED = "e"
    HELD = "w"  # its next occurrence waits for the end of one that lives
    TURN = "g"  # its next occurrence has its turn in a paced catch-up
    RUNNING = "c"  # it counts from the end of its run, which lasts
    RAN = "d"  # ... and has ended, at the cursor


@dataclass(frozen=True, slots=True)
class Standing:
    version: int = 0
    cursor_ms: int = 0  # nominal time of the next occurrence; 0: none
    mode: Mode = Mode.ACTIVE
    made: int = 0
    missed: int = 0
    skipped: int = 0
    catch_ms: int = 0  # when a catch-up began; 0: none
    kept: int = 100
    keep_ms: int = 0
    live: str = "-"

    @classmethod
    def parse(cls, raw: bytes) -> Standing:
        match = _STATE.fullmatch(raw)
        if match is None:
            raise PayloadUndecodable(f"this is no state of a schedule: {raw[:80]!r}")
        version, cursor, mode, made, missed, skipped, catch, kept, keep, live = match.groups()
        return cls(
            int(version),
            int(cursor),
            Mode(mode.decode()),
            int(made),
            int(missed),
            int(skipped),
            int(catch),
            int(kept),
            int(keep),
            live.decode(),
        )

    def __str__(self) -> str:
        numbers = (self.made, self.missed, self.skipped, self.catch_ms, self.kept, self.keep_ms)
        return f"{self.version} {self.cursor_ms} {self.mode} {' '.join(map(str, numbers))} {self.live}"

    @property
    def occurrences(self) -> tuple[str, ...]:
        """Those that may still live."""
        return () if self.live == "-" or "/" in self.live else tuple(self.live.split(","))

    @property
    def range(self) -> tuple[int, int]:
        """Of a backfill: where it ends in ms, and how many occurrences it makes."""
        last, _, count = self.live.partition("/")
        return int(last), int(count)
