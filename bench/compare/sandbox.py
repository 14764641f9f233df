"""Runs code that a model wrote: a process of its own with limits, which may change nothing.

This guards against accidents, not against an attacker: what the user may read, the code may read.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path

# The limits hold before a line of the program is read. An audit hook cannot be taken back.
_DRIVER = """
import os, resource, signal, sys

def forbid(event, args):
    if event == "open" and not (args[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC):
        return
    if event in CALLS or event.startswith(("shutil.", "socket.", "subprocess.", "ctypes.")):
        raise PermissionError(event)

CALLS = {"open", *(f"os.{name}" for name in (
    "chmod chown exec fork forkpty kill killpg link mkdir posix_spawn putenv remove rename rmdir "
    "symlink system truncate unsetenv utime").split())}

cpu_s, memory, file_bytes = map(int, sys.argv[1:])
limits = {"AS": memory, "FSIZE": file_bytes, "NOFILE": 32, "NPROC": 0, "CORE": 0}
for name, value in limits.items():
    resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))
# A second later the kernel ends what does not get to the handler.
signal.signal(signal.SIGXCPU, lambda *_: os._exit(124))
resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
secret, _, program = sys.stdin.read().partition("\\n")
code = compile(program, "answer.py", "exec")
sys.addaudithook(forbid)
exec(code, {"__name__": "answer"})
sys.stdout.flush()
os.write(1, secret.encode())
os._exit(0)
"""
_OUT_OF_CPU = 124
_NAMESPACES = ("unshare", "--user", "--map-root-user", "--net", "--pid", "--fork", "--kill-child")


class Outcome(StrEnum):
    """How a program ended."""

    PASSED = "passed"
    FAILED = "failed"
    TIMED_OUT = "timed out"


@dataclass(frozen=True, slots=True)
class Limits:
    """What a program may use: seconds of time and of CPU, bytes of memory and of one file."""

    wall_s: float = 10.0
    cpu_s: int = 8
    memory: int = 512 << 20
    file_bytes: int = 1 << 20


_DEFAULT = Limits()


def run(program: str, limits: Limits = _DEFAULT) -> Outcome:
    """Run a Python program to its end, and say how it ended.

    It has no environment, no site packages, an empty folder, and no network where this machine
    lets an ordinary user leave it. It passes when its last line was reached without an exception.
    """
    secret = secrets.token_hex(16)
    numbers = (str(limits.cpu_s), str(limits.memory), str(limits.file_bytes))
    python = (sys.executable, "-I", "-S", "-B", "-X", "utf8", "-c", _DRIVER, *numbers)
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "output"
        with output.open("wb") as stdout:
            process = subprocess.Popen(  # noqa: S603
                (*_namespaces(), *python),
                stdin=subprocess.PIPE,
                stdout=stdout,
                stderr=subprocess.DEVNULL,
                cwd=folder,
                env={},
                start_new_session=True,
            )
        try:
            process.communicate(f"{secret}\n{program}".encode(), timeout=limits.wall_s)
        except subprocess.TimeoutExpired:
            return Outcome.TIMED_OUT
        finally:
            # What it may have started is in its group.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if process.returncode == _OUT_OF_CPU:
            return Outcome.TIMED_OUT
        ended = process.returncode == 0 and output.read_bytes().endswith(secret.encode())
    return Outcome.PASSED if ended else Outcome.FAILED


@lru_cache(maxsize=1)
def _namespaces() -> tuple[str, ...]:
    """Return the command that leaves the network and the other processes behind, () without one."""
    path = shutil.which(_NAMESPACES[0])
    if path is None:
        return ()
    command = (path, *_NAMESPACES[1:])
    tried = subprocess.run((*command, "true"), capture_output=True)  # noqa: S603
    return command if tried.returncode == 0 else ()
