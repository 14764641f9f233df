"""CPU seconds of this process and of all that it started, by their part in the cluster."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
# By the beginning of a process's title.
_PARTS = (
    ("ray::ServeReplica:foredraft:", ""),
    ("ray::ProxyActor", "proxy"),
    ("ray::ServeController", "controller"),
    ("ray::", "other workers"),
)


def cpu_seconds() -> dict[str, float]:
    """Return the CPU seconds so far, by part: client is this process, the rest are descendants."""
    parents: dict[int, int] = {}
    spent: dict[int, float] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(folder.name)] = int(fields[1])
            spent[int(folder.name)] = _TICK_S * (int(fields[11]) + int(fields[12]))
    children: dict[int, list[int]] = defaultdict(list)
    for pid, parent in parents.items():
        children[parent].append(pid)
    found: dict[str, float] = defaultdict(float)
    waiting = [os.getpid()]
    while waiting:
        pid = waiting.pop()
        waiting += children[pid]
        found[_part(pid)] += spent[pid]
    return dict(found)


def _part(pid: int) -> str:
    if pid == os.getpid():
        return "client"
    try:
        title = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return "ended"
    for start, name in _PARTS:
        if title.startswith(start):
            return name or title[len(start) :].split()[0].rstrip(":")
    return "Ray's own"
