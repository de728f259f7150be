"""The processes of a soak and what is done to them. Every fault is written down with its time, for the checker.

Signals go through process descriptors: a pid that died and was given to somebody else is never hit. All processes are
in sessions of their own, so `leftovers()` finds orphans, whoever their parent is now.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tests.chaos import app
from tests.support.host import ROOT, until
from tests.support.proxy import CuttingProxy
from tests.support.servers import BOUND, ServerProcess

LEASE_S = 2.0
HOSTS = 2
PROCESSES = 2
GAP_S = 0.7  # between two faults, on average; stops overlap with what comes next
STOP_S = (1.0, 4.0)
DOWN_S = (0.0, 1.5)
BREATH_S = 1.0  # between two faults of the server

# How often each is drawn.
WEIGHTS = {
    "kill worker": 5,
    "kill supervisor": 2,
    "kill scheduler": 1,
    "kill server": 2,
    "stop worker": 3,
    "stop supervisor": 3,
    "stop scheduler": 1,
    "stop server": 1,
    "script flush": 2,
    "cut reply": 6,
}


def now_s() -> float:
    """The clock that all processes of the machine share; handlers write it down, too."""
    return time.monotonic_ns() / 1e9


@dataclass
class Fault:
    kind: str
    pid: int  # whom it hit: a worker, a supervisor, the scheduler or the server; 0: nobody
    begin_s: float
    end_s: float


class Program:
    """One `redisched` command as a process of its own, in a session of its own; dies with this process."""

    def __init__(self, role: str, words: list[str], environment: dict[str, str], log: Path) -> None:
        self.role = role
        self._out: IO[bytes] = log.open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", BOUND, str(os.getpid()), sys.executable, "-m", "redisched", *words],
            env={**os.environ, **environment},
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=self._out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def runs(self) -> bool:
        return self.process.poll() is None

    def children(self) -> list[int]:
        try:
            return [int(pid) for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()]
        except OSError:
            return []

    def close(self) -> None:
        if self.runs:
            self.process.kill()
        self.process.wait()
        self._out.close()


class Fleet:
    """Two hosts and a scheduler. What was killed is replaced; what ends by itself is a finding."""

    def __init__(self, url: str, folder: Path) -> None:
        self._environment = {"REDISCHED_URL": url, app.EFFECTS: str(folder / "effects")}
        self._folder = folder
        self._sessions: list[int] = []
        self.findings: list[str] = []
        self.hosts: list[Program] = []
        self.scheduler: Program | None = None

    def start(self) -> None:
        for _ in range(HOSTS):
            self.hosts.append(self._host())
        self.scheduler = self._scheduler()

    def _host(self) -> Program:
        options = ["--processes", str(PROCESSES), "--lease", f"{LEASE_S:g}"]
        return self._begin("host", ["worker", "tests.chaos.app:sched", *options])

    def _scheduler(self) -> Program:
        return self._begin("scheduler", ["scheduler", "--namespace", app.NAMESPACE])

    def _begin(self, role: str, words: list[str]) -> Program:
        program = Program(role, words, self._environment, self._folder / f"{role}-{len(self._sessions)}.log")
        self._sessions.append(program.pid)
        return program

    def workers(self) -> list[int]:
        return [pid for host in self.hosts for pid in host.children()]

    def replace(self, pid: int) -> None:
        """A new one for the one that was killed."""
        for n, host in enumerate(self.hosts):
            if host.pid == pid:
                host.close()
                self.hosts[n] = self._host()
        if self.scheduler is not None and self.scheduler.pid == pid:
            self.scheduler.close()
            self.scheduler = self._scheduler()

    def look(self) -> None:
        """Replaces what ended though nobody killed it, and says so."""
        for program in [*self.hosts, *([self.scheduler] if self.scheduler else [])]:
            if not program.runs:
                self.findings.append(f"{program.role} {program.pid} ended by itself with {program.process.returncode}")
                self.replace(program.pid)

    async def end(self) -> None:
        """SIGTERM to all: an orderly end, and nobody left."""
        programs = [*self.hosts, *([self.scheduler] if self.scheduler else [])]
        for program in programs:
            program.process.terminate()
        for program in programs:
            try:
                await until(lambda p=program: not p.runs, f"{program.role} {program.pid} ends on SIGTERM", 30.0)  # type: ignore[misc]
            except AssertionError as error:
                self.findings.append(str(error))
            else:
                if program.process.returncode:
                    self.findings.append(f"{program.role} {program.pid} ended with {program.process.returncode}")
        try:
            await until(lambda: not self.leftovers(), "orphans end", 15.0)
        except AssertionError:
            self.findings.append(f"processes outlived their supervisors: {self.leftovers()}")

    def leftovers(self) -> list[int]:
        """Processes of our sessions that are alive."""
        found = []
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = path.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) in self._sessions and fields[0] != "Z":
                found.append(int(path.parent.name))
        return found

    def close(self) -> None:
        """Whatever state they are in: nothing is left."""
        for program in [*self.hosts, *([self.scheduler] if self.scheduler else [])]:
            program.close()
        for pid in self.leftovers():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


class Faults:
    """Draws faults from the seed, does them, and undoes what can be undone."""

    def __init__(self, rng: random.Random, fleet: Fleet, server: ServerProcess, proxy: CuttingProxy) -> None:
        self._rng = rng
        self._fleet = fleet
        self._server = server
        self._proxy = proxy
        self._server_busy = False
        self._stopped: set[int] = set()
        self.done: list[Fault] = []

    @property
    def counts(self) -> dict[str, int]:
        return dict(Counter(fault.kind for fault in self.done))

    async def run(self, seconds: float) -> None:
        """Until the time is over and everything that was stopped goes on."""
        give_up = now_s() + seconds
        async with asyncio.TaskGroup() as group:
            while now_s() < give_up:
                await asyncio.sleep(self._rng.expovariate(1 / GAP_S))
                kind = self._rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
                # All of the seed's numbers are drawn here, in order: what the processes do cannot change them.
                which, span = self._rng.random(), self._rng.random()
                group.create_task(self._do(kind, which, span))
                self._fleet.look()

    async def _do(self, kind: str, which: float, span: float) -> None:
        if kind == "cut reply":
            self._proxy.cut_replies(after=int(span * 3))
            self._note(kind, 0)
        elif kind == "script flush":
            if self._server.command("SCRIPT", "FLUSH", "SYNC") == "+OK":
                self._note(kind, 0)
        elif kind.endswith("server"):
            await self._hit_server(kind, span)
        else:
            verb, role = kind.split()
            pid = self._victim(role, which)
            if pid and verb == "stop":
                await self._stop(kind, pid, span)
            elif pid:
                self._kill(kind, pid)

    def _victim(self, role: str, which: float) -> int:
        scheduler = self._fleet.scheduler
        assert scheduler is not None
        pids = {
            "worker": self._fleet.workers,
            "supervisor": lambda: [host.pid for host in self._fleet.hosts],
            "scheduler": lambda: [scheduler.pid],
        }[role]()
        free = [pid for pid in pids if pid not in self._stopped]
        return free[int(which * len(free))] if free else 0

    def _kill(self, kind: str, pid: int) -> None:
        if self._signal(pid, signal.SIGKILL):
            self._note(kind, pid)
            self._fleet.replace(pid)

    async def _stop(self, kind: str, pid: int, span: float) -> None:
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        self._stopped.add(pid)
        try:
            signal.pidfd_send_signal(fd, signal.SIGSTOP)
            fault = self._note(kind, pid)
            await asyncio.sleep(STOP_S[0] + span * (STOP_S[1] - STOP_S[0]))
            fault.end_s = now_s()
        finally:
            self._stopped.discard(pid)
            try:
                signal.pidfd_send_signal(fd, signal.SIGCONT)
            except ProcessLookupError:
                pass  # killed meanwhile
            os.close(fd)

    async def _hit_server(self, kind: str, span: float) -> None:
        # One after the other would be an outage longer than any call waits: another test.
        if self._server_busy:
            return
        self._server_busy = True
        if kind == "stop server":
            await self._stop(kind, self._server.pid, span)
        else:
            fault = self._note(kind, self._server.pid)
            self._server.kill()
            await asyncio.sleep(DOWN_S[0] + span * (DOWN_S[1] - DOWN_S[0]))
            # Not in a thread: the server would die with the thread.
            self._server.restart()
            fault.end_s = now_s()
        await asyncio.sleep(BREATH_S)
        self._server_busy = False

    def _signal(self, pid: int, signum: int) -> bool:
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            return False
        try:
            signal.pidfd_send_signal(fd, signum)
        except ProcessLookupError:
            return False
        finally:
            os.close(fd)
        return True

    def _note(self, kind: str, pid: int) -> Fault:
        moment = now_s()
        self.done.append(Fault(kind, pid, moment, moment))
        return self.done[-1]
