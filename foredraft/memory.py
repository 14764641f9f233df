"""The memory of a process that has loaded what it serves: what it needs no more, and what stays."""

from __future__ import annotations

import ctypes
import gc

# New objects after which the new ones are looked through. With Python's 700 an ingress under load
# does so every few requests, and finds little: they leave few cycles.
_NEW_OBJECTS = 10_000


def give_back_freed() -> None:
    """Give free memory back to the system, where the C library can (glibc's malloc_trim).

    A service needs more to load its model than to serve it.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def freeze_heap() -> None:
    """Leave all objects of now out of garbage collections, and have these be rare; for processes
    that serve from now on.

    A full collection stops all of Python while it visits every object, of which torch and
    transformers alone have hundreds of thousands.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS)
