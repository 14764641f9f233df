"""Code that a model wrote runs with limits, and what it may not do fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.compare.sandbox import Limits, Outcome, run

SHORT = Limits(wall_s=1.0, cpu_s=8)


@pytest.mark.parametrize(
    ("program", "outcome"),
    [
        ("import math, typing\nassert math.gcd(4, 6) == 2", Outcome.PASSED),
        ("print('text of its own, é')", Outcome.PASSED),
        ("assert False", Outcome.FAILED),
        ("def f(:", Outcome.FAILED),
        ("import sys\nsys.exit(0)", Outcome.FAILED),
        ("import os\nos._exit(0)", Outcome.FAILED),
        ("import os\nassert 'HOME' not in os.environ and 'PATH' not in os.environ", Outcome.PASSED),
        ("import numpy", Outcome.FAILED),
    ],
)
def test_a_program_passes_that_reaches_its_end(program: str, outcome: Outcome) -> None:
    assert run(program) is outcome


def test_an_endless_loop_is_killed() -> None:
    assert run("while True: pass", SHORT) is Outcome.TIMED_OUT


def test_one_that_waits_for_ever_is_killed_and_one_that_computes_loses_its_cpu() -> None:
    assert run("import time\ntime.sleep(60)", SHORT) is Outcome.TIMED_OUT
    assert run("while True: pass", Limits(wall_s=60, cpu_s=1)) is Outcome.TIMED_OUT


@pytest.mark.parametrize(
    "program", ["x = bytearray(1 << 30)", "x = []\nwhile True: x.append([0] * 100000)"]
)
def test_a_memory_hog_fails(program: str) -> None:
    assert run(program, Limits(wall_s=20, memory=256 << 20)) is Outcome.FAILED


@pytest.mark.parametrize(
    "action",
    [
        "open({path!r}, 'w')",
        "import os; os.remove({path!r})",
        "import os; os.open({path!r}, os.O_RDWR)",
        "import shutil; shutil.rmtree({path!r})",
        "import os; os.fork()",
        "import os; os.system('true')",
        "import subprocess; subprocess.run(['true'])",
        "import socket; socket.create_connection(('127.0.0.1', 9))",
        "import ctypes; ctypes.CDLL(None)",
    ],
)
def test_nothing_outside_is_changed(tmp_path: Path, action: str) -> None:
    file = tmp_path / "kept"
    file.write_text("kept")
    program = action.format(path=str(file))
    refused = (
        f"try:\n    {program}\nexcept PermissionError:\n    pass\nelse:\n    raise ValueError\n"
    )
    assert run(refused) is Outcome.PASSED
    assert file.read_text() == "kept"


def test_endless_output_fails_without_filling_the_disk() -> None:
    small = Limits(wall_s=20, file_bytes=1 << 16)
    assert run("while True: print('x' * 1000)", small) is Outcome.FAILED
