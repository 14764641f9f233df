"""The processes of the cluster that this process started: Ray gives them titles."""

from __future__ import annotations

import os
from pathlib import Path

REPLICA = "ray::ServeReplica:"


def replicas(deployment: str, application: str = "foredraft") -> list[int]:
    """Return the process ids of a deployment's replicas, the lowest first.

    Those of other clusters on this machine are left alone.
    """
    start = f"{REPLICA}{application}:{deployment}"
    return [pid for pid in descendants(os.getpid()) if title(pid).startswith(start)]


def descendants(ancestor: int) -> list[int]:
    """Return the ids of the processes that descend from one, the lowest first."""
    pids = (int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdigit())
    return sorted(pid for pid in pids if _below(pid, ancestor))


def title(pid: int) -> str:
    """Return a process's command line, empty where there is none."""
    try:
        return (
            Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        )
    except OSError:
        return ""


def _below(pid: int, ancestor: int) -> bool:
    """Return whether a process descends from another one."""
    while pid > 1:
        try:
            # The fourth field, behind a name that may hold anything.
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            return False
        if pid == ancestor:
            return True
    return False
