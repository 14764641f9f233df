"""When a round passes which point, in every process of a cluster, on the machine's one clock.

Nothing of this is in the product: a hook wraps functions when a worker process begins. Each point
costs a few tenths of a microsecond, and each process writes its own file once a second.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import json
import os
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

FOLDER = "FOREDRAFT_TRACE"

# Where, and what it is called before and after; a generator's items count as ends.
_POINTS: tuple[tuple[str, str, str | None, str | None], ...] = (
    ("verifier_service.runner", "Runner.verify", "round to engine", None),
    ("verifier_service.runner", "Rounds.submit", "engine has round", None),
    ("verifier_service.runner", "Rounds.step", "step begins", "step ended"),
    ("verifier_service.targets.engine", "forward", "forward begins", "forward ended"),
    ("verifier_service.lease", "Lease.decided", "verdict on loop", "verdict committed"),
    ("verifier_service.server", "_report", "report begins", "report sent"),
    ("drafter_service.client", "DrafterStream.propose", "propose begins", None),
    ("drafter_service.client", "DrafterStream._answer", "block read", "block decoded"),
    ("foredraft.rpc.client", "ClientStream._write", "write begins", "write ended"),
    ("drafter_service.batcher", "Batcher.propose", "proposal read", None),
    ("drafter_service.batcher", "Proposals.submit", "engine has proposal", None),
    ("drafter_service.batcher", "Proposals.step", "batch begins", "batch ended"),
    ("foredraft.codec.drafter", "draft_block_to_pb", "block on loop", None),
    ("foredraft.rpc.session", "ServerStream.write", "answer begins", "answer written"),
    ("foredraft.codec.lease", "led_round_from_pb", "led round read", None),
    ("orchestrator.drive.pipeline", "_Run._account", "accounting begins", "accounted"),
    ("deployments.ingress.openai.answer", "sse", "event begins", "event encoded"),
)
_points: list[tuple[int, str]] = []


def install() -> None:
    """Wrap the points of this process, and write what they record from now on."""
    for module, path, before, after in _POINTS:
        holder: Any = importlib.import_module(module)
        *outer, name = path.split(".")
        for each in outer:
            holder = getattr(holder, each)
        setattr(holder, name, _wrapped(getattr(holder, name), before, after))
    threading.Thread(target=_write, daemon=True).start()


def read(folder: Path) -> list[tuple[int, str]]:
    """Return all processes' points in the order of time: nanoseconds, "part: point"."""
    found: list[tuple[int, str]] = []
    for file in folder.iterdir():
        for line in file.read_text().splitlines():
            part, points = json.loads(line)
            found += ((at, f"{part}: {point}") for at, point in points)
    return sorted(found)


def _note(point: str | None) -> None:
    if point is not None:
        _points.append((time.perf_counter_ns(), point))


def _wrapped(function: Callable[..., Any], before: str | None, after: str | None) -> Any:
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def asynchronous(*args: Any, **options: Any) -> Any:
            _note(before)
            answer = await function(*args, **options)
            _note(after)
            return answer

        return asynchronous
    if inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def generator(*args: Any, **options: Any) -> Iterable[Any]:
            _note(before)
            for item in function(*args, **options):
                _note(after)
                yield item

        return generator

    @functools.wraps(function)
    def synchronous(*args: Any, **options: Any) -> Any:
        _note(before)
        answer = function(*args, **options)
        _note(after)
        return answer

    return synchronous


def _part() -> str:
    title = Path("/proc/self/cmdline").read_bytes().decode(errors="replace")
    for part in ("ingress", "drafter", "verifier"):
        if f"ServeReplica:foredraft:{part}" in title:
            return part
    return "other"


def _write() -> None:
    file = Path(os.environ[FOLDER]) / f"{os.getpid()}.jsonl"
    while True:
        time.sleep(1)
        count = len(_points)
        if count:
            points = _points[:count]
            del _points[:count]
            with file.open("a") as out:
                out.write(json.dumps([_part(), points]) + "\n")
