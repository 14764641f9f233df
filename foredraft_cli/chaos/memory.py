"""The memory of the cluster that this process started, in MiB, to see whether it grows."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from deployments.serve.processes import REPLICA, descendants, title

_SHARED = Path("/dev/shm")  # noqa: S108
_MIB = 1 << 20


class Memory(NamedTuple):
    """What Foredraft's replicas hold, what Ray's own processes do, and shared memory, in MiB."""

    replicas: int
    ray: int
    shared: int


def memory_mib() -> Memory:
    """Return what the processes of the cluster and this machine's shared memory hold.

    A page that several processes map counts once (their proportional set sizes); a file in shared
    memory counts for itself, so that what killed processes left there is seen.
    """
    replicas = ray = 0
    for pid in descendants(os.getpid()):
        if title(pid).startswith(REPLICA):
            replicas += _own_bytes(pid)
        else:
            ray += _own_bytes(pid)
    shared = shutil.disk_usage(_SHARED).used if _SHARED.exists() else 0
    return Memory(round(replicas / _MIB), round(ray / _MIB), round(shared / _MIB))


def _own_bytes(pid: int) -> int:
    """Return a process's share of its pages, without those of files in shared memory."""
    sizes = {"Pss_Anon": 0, "Pss_File": 0}
    # It may have ended meanwhile.
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            name, _, value = line.partition(":")
            if name in sizes:
                sizes[name] = int(value.split()[0]) * 1024
    return sum(sizes.values())
