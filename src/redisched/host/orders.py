"""What a child is told at its start, as JSON in its command line; and the words both sides say."""

from __future__ import annotations

import msgspec

from redisched.settings import WorkerSettings

# child to supervisor
READY = b"ready\n"  # the application is loaded, claiming begins
# supervisor to child
DRAIN = b"drain\n"  # claim no more, let what runs finish within the grace time
QUIT = b"quit\n"  # give everything back now

STUCK_EXIT = 75  # a handler could not be stopped
FAILED_EXIT = 78  # the application cannot be loaded: starting it again at once would not help


class Orders(msgspec.Struct, frozen=True):
    app: str
    url: str | None
    name: str
    control_fd: int
    ledger_fd: int
    settings: WorkerSettings
    log_level: str = "INFO"
    log_style: str = "text"


def pack(orders: Orders) -> str:
    return msgspec.json.encode(orders).decode()


def unpack(text: str) -> Orders:
    return msgspec.json.decode(text, type=Orders)
