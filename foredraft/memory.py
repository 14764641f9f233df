"""Memory that is free in this process, and which the system still counts as its own."""

from __future__ import annotations

import ctypes


def give_back_freed() -> None:
    """Give free memory back to the system, where the C library can (glibc's malloc_trim).

    A service needs more to load its model than to serve it.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
