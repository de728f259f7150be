"""Tries to get a wrong call past a type checker, or a right one refused."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

CODE = Path(__file__).parent / "user_code.py"


def test_a_type_checker_sees_calls_as_they_are_written(tmp_path: Path) -> None:
    # A Handler typed too loosely lets everything through; one typed too strictly makes users write `type: ignore`.
    wanted = [n for n, line in enumerate(CODE.read_text().splitlines(), 1) if line.endswith("# error")]
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path), str(CODE)]
    said = subprocess.run(command, capture_output=True, text=True, check=False, cwd=CODE.parents[2])
    found = [int(n) for n in re.findall(r"user_code\.py:(\d+): error", said.stdout)]
    assert found == wanted, said.stdout + said.stderr
