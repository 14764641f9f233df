"""Memory of a training process."""

from __future__ import annotations

import ctypes

_MMAP_MAX, _TRIM_THRESHOLD = -4, -1
"""Of glibc's mallopt."""


def keep_freed_memory() -> None:
    """Have glibc keep what was freed.

    By default each large tensor is fresh pages of the kernel, zeroed and faulted in one by one:
    nearly half of a step's time. Other C libraries are left as they are.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_MAX, 0)
        mallopt(_TRIM_THRESHOLD, 2**31 - 1)
