"""A short soak in every run of the suite: faults for some seconds, and nothing lost or done without a reason."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import pytest

from tests.chaos.checker import Ask, Checker, Report, Run
from tests.chaos.faults import Fault
from tests.chaos.soak import soak, text

SEED = 7
SECONDS = 12.0  # and some for the start, the drain and the end

pytestmark = pytest.mark.anyio


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and signals by process descriptor")
async def test_a_short_soak_finds_nothing(tmp_path: Path) -> None:
    # all promises at once: a job lost, ended twice without a fault to blame, left in two places or none
    report = await soak(SECONDS, SEED, tmp_path)
    assert not report.findings, f"python -m tests.chaos.soak --seconds {SECONDS:g} --seed {SEED}\n{text(report)}"
    assert report.lost == 0
    assert report.jobs > 100
    assert sum(report.faults.values()) >= 5


# -- the test of the test: a checker that finds nothing proves nothing


def judge(runs: list[Run], faults: list[Fault], *asks: Ask, done: int | None = None) -> Report:
    for run, following in itertools.pairwise(runs):
        run.next_s = following.start_s
    report = Report(0, 0.0, totals={"done": len(asks) if done is None else done})
    Checker(list(asks), runs, faults, set()).judge(report)
    return report


def ask(token: int = 1, created: bool | None = True) -> Ask:
    return Ask(token, "now", 0.0, "job", created)


def run(fence: int, start_s: float, finish: str, pid: int = 10) -> Run:
    return Run(1, "job", fence, fence, pid, 9, start_s, finish, start_s + 0.5)


async def test_the_checker_finds_a_lost_job() -> None:
    assert judge([], [], ask()).lost == 1
    assert judge([run(1, 1.0, "failed")], [], ask()).lost == 1
    assert judge([run(1, 1.0, "end")], [], ask()).findings == []
    assert judge([], [], ask(created=None), done=0).findings == []


async def test_the_checker_wants_a_fault_for_each_extra_end() -> None:
    twice = [run(1, 1.0, "end"), run(2, 3.0, "end")]
    assert judge(twice, [], ask()).ended_again == {"unexplained": 1}
    hit, elsewhere, late = (Fault("kill worker", pid, at, at) for pid, at in ((10, 2.0), (11, 2.0), (10, 3.5)))
    assert judge(twice, [hit], ask()).findings == []
    assert judge(twice, [elsewhere], ask()).findings
    assert judge(twice, [late], ask()).findings
    thrice = [*twice, run(3, 3.2, "end")]
    assert judge(thrice, [Fault("kill supervisor", 9, 2.0, 2.0)], ask()).findings
    assert judge(thrice, [Fault("stop supervisor", 9, 1.0, 2.9)], ask()).findings
    assert judge(thrice, [Fault("stop supervisor", 9, 1.0, 3.1)], ask()).findings == []


async def test_the_checker_wants_a_reason_for_each_delivery() -> None:
    assert judge([run(1, 1.0, "cancelled"), run(2, 3.0, "end")], [], ask()).findings
    assert judge([run(1, 1.0, "failed"), run(2, 3.0, "end")], [], ask()).findings == []
    assert judge([run(1, 1.0, "end")], [], ask(created=False), done=1).findings
