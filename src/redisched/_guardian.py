"""The process that owns the embedded server, and the locks it shares with that server's users.

`embedded.py` runs this file by its path, once a data folder; nobody else does. It starts one valkey-server,
ends it when the last user is gone, and never outlives it. It never restarts a server: the next user does.
Floor 3: standard library only, because it runs without site-packages (ready in 25 ms) and must not
depend on what the package imports.

All of it rests on flock, because the kernel drops a lock when its holder dies, however it dies:

    users.lock     shared by every user, for as long as it uses the server. The guardian waits for it
                   exclusively: when it has it, nobody is left, and nobody can join until it has gone.
    start.lock     exclusive, by the one user that looks for a guardian and starts it.
    guardian.lock  exclusive, by the guardian, for its life.
    server.lock    exclusive, by valkey-server itself (an inherited descriptor): while it is held, a server
                   or a child of it may still write to the folder.

These files are never removed: two processes that locked two files of one name would not see each other.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

USERS, START, GUARDIAN, SERVER = "users.lock", "start.lock", "guardian.lock", "server.lock"
STATE, LOG = "server.json", "server.log"
SHARED, EXCLUSIVE = fcntl.LOCK_SH, fcntl.LOCK_EX

BUSY = 3  # exit code: the folder has a guardian already
POLL_S = 0.005
GUARDIAN_LOCK_S = 1.0  # only probes and another starting guardian can be in the way
OLD_SERVER_S = 30.0  # how long the server of a killed guardian may take to end
TERM_S = 30.0  # how long our server may take to end before it is killed (which loses nothing but time)
PR_SET_PDEATHSIG = 1


class Running(NamedTuple):
    """What the guardian tells users through `server.json`. True only while the locks are held."""

    guardian: int
    server: int
    socket: str


def open_lock(path: Path) -> int:
    # Python opens close-on-exec, so a program that a user starts does not keep the server alive.
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)


def take(fd: int, how: int, deadline: float) -> bool:
    """Locks `fd`; False when somebody else still had it at the deadline (of the monotonic clock)."""
    while True:
        try:
            fcntl.flock(fd, how | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(POLL_S)
        else:
            return True


def release(fd: int) -> None:
    # Unlocked by name, not only closed: a child that another thread forked meanwhile has a copy of this
    # descriptor and would hold the lock for its whole life.
    fcntl.flock(fd, fcntl.LOCK_UN)
    os.close(fd)


def is_held(path: Path) -> bool:
    """Whether somebody holds this lock exclusively. Takes it for a moment, so takers retry."""
    fd = open_lock(path)
    try:
        return not take(fd, SHARED, 0.0)
    finally:
        release(fd)


def read_state(home: Path) -> Running | None:
    try:
        return Running(**json.loads((home / STATE).read_bytes()))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def write_state(home: Path, running: Running) -> None:
    # Renamed into place: a user that polls never reads half of it.
    fresh = home / f"{STATE}.new"
    fresh.write_text(json.dumps(running._asdict()))
    fresh.replace(home / STATE)


def ask(path: str, command: str) -> str:
    """The first line of the server's answer, or "" when nobody answers."""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(1.0)
            connection.connect(path)
            connection.sendall(command.encode() + b"\r\n")
            with connection.makefile("rb") as replies:
                return replies.readline().decode(errors="replace").rstrip()
    except OSError:
        return ""


def server_command(binary: str, home: Path, path: str) -> list[str]:
    options = {
        "port": "0",
        "unixsocket": path,
        "unixsocketperm": "700",
        "dir": str(home),
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": "",
        "maxmemory-policy": "noeviction",
        "daemonize": "no",
        # A server that refuses to end because a last write failed would be an orphan.
        "shutdown-on-sigterm": "force",
    }
    return [binary, *(word for name, value in options.items() for word in (f"--{name}", value))]


def die_with(parent: int) -> Callable[[], None] | None:
    """For `preexec_fn`: the kernel sends the new process SIGTERM when the thread that started it ends."""
    if sys.platform != "linux":
        return None  # the next guardian ends an orphan, see `watch`
    libc = ctypes.CDLL(None)

    def bind() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # killed between the fork and the line above
            os._exit(1)

    return bind


def end_after_last_user(home: Path, server: subprocess.Popen[bytes]) -> None:
    # The lock stays ours until this process has ended, so whoever joins now waits for that, and then
    # finds no guardian; it cannot get hold of a server that is about to go.
    fcntl.flock(open_lock(home / USERS), EXCLUSIVE)
    server.terminate()
    time.sleep(TERM_S)  # the process ends with the server, usually long before this
    server.kill()


def end_now(home: Path, server: subprocess.Popen[bytes]) -> None:
    """Somebody sent us SIGTERM, a shutdown of the machine for example, and there may be users."""
    # The server answers for another 100 ms; without this file nobody joins it in that time.
    (home / STATE).unlink(missing_ok=True)
    server.terminate()


def watch(home: Path, path: str, binary: str, left_behind: Running | None) -> int:
    """Runs one server until it ends, by itself or after its last user."""
    lock = open_lock(home / SERVER)
    if not take(lock, EXCLUSIVE, 0.0):
        # The last guardian was killed. On Linux its server is on its way out; elsewhere it has to be told.
        # Two servers on one append-only file would destroy it, so nothing starts before it has ended.
        if left_behind is not None:
            ask(left_behind.socket, "SHUTDOWN FORCE")
        if not take(lock, EXCLUSIVE, time.monotonic() + OLD_SERVER_S):
            print(f"guardian: an older valkey-server still works on {home}", flush=True)
            return 1
    server = subprocess.Popen(
        server_command(binary, home, path),
        stdin=subprocess.DEVNULL,
        pass_fds=(lock,),
        preexec_fn=die_with(os.getpid()),  # noqa: PLW1509 - no thread has been started yet
        env=os.environ | {"LC_ALL": "C"},  # a locale that does not exist here would keep it from starting
    )
    try:
        os.close(lock)  # from here on the server alone holds it
        signal.signal(signal.SIGTERM, lambda *_: end_now(home, server))
        write_state(home, Running(os.getpid(), server.pid, path))
        threading.Thread(target=end_after_last_user, args=(home, server), daemon=True).start()
        status = server.wait()
    finally:
        if server.poll() is None:
            server.terminate()
            server.wait()
    print(f"guardian: valkey-server {server.pid} ended with status {status}", flush=True)
    return 0


def main(home: Path, path: str, binary: str) -> int:
    os.umask(0o077)
    # Whatever the starting process ignored or blocked is inherited through exec: a blocked SIGTERM would
    # make a server that cannot be ended, an ignored SIGCHLD one that cannot finish a rewrite.
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for number in (signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    lock = open_lock(home / GUARDIAN)
    if not take(lock, EXCLUSIVE, time.monotonic() + GUARDIAN_LOCK_S):
        return BUSY
    left_behind = read_state(home)
    (home / STATE).unlink(missing_ok=True)
    # The starter waits for this process only, so when it goes on, the lock is held (the child shares it)
    # and `server.json` is absent or new. The child is nobody's zombie when it ends.
    if os.fork():
        os._exit(0)
    return watch(home, path, binary, left_behind)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
