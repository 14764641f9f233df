"""The memory of a process that has loaded what it serves: what it needs no more, and what stays."""

from __future__ import annotations

import ctypes
import gc


def give_back_freed() -> None:
    """Give free memory back to the system, where the C library can (glibc's malloc_trim).

    A service needs more to load its model than to serve it.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def freeze_heap() -> None:
    """Leave all objects of now out of garbage collections; for processes that only serve.

    A full collection stops all of Python while it visits every object, of which torch and
    transformers alone have hundreds of thousands.
    """
    gc.collect()
    gc.freeze()
