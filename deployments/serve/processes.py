"""The processes of the cluster that this process started: Ray gives them titles."""

from __future__ import annotations

import os
from pathlib import Path

_TITLE = "ray::ServeReplica:{application}:{deployment}"


def replicas(deployment: str, application: str = "foredraft") -> list[int]:
    """Return the process ids of a deployment's replicas, the lowest first.

    Those of other clusters on this machine are left alone.
    """
    start, own = _TITLE.format(application=application, deployment=deployment), os.getpid()
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and _title(folder).startswith(start) and _below(folder, own):
            found.append(int(folder.name))
    return sorted(found)


def _title(folder: Path) -> str:
    try:
        return (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def _below(folder: Path, ancestor: int) -> bool:
    """Return whether a process descends from another one."""
    pid = int(folder.name)
    while pid > 1:
        try:
            # The fourth field, behind a name that may hold anything.
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            return False
        if pid == ancestor:
            return True
    return False
