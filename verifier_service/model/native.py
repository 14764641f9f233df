"""Loads the compiled kernels: an optional extension module, without Python in it, beside this."""

from __future__ import annotations

import ctypes
import functools
import logging
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

_pointer, _int64, _double = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double


@functools.cache
def library() -> ctypes.CDLL | None:
    """Return the compiled kernels, or None where they were not built."""
    here = Path(__file__).parent
    path = next((p for s in EXTENSION_SUFFIXES if (p := here / f"_native{s}").is_file()), None)
    if path is None:
        log.warning("the compiled kernels were not built; using the slower reference")
        return None
    kernels = ctypes.CDLL(str(path))
    strided: list[Any] = [_pointer, _int64, _int64]
    kernels.fd_attend.argtypes = [_pointer, _int64, *strided * 3, _pointer]
    kernels.fd_keep.argtypes = [_pointer, _pointer, *[_int64] * 4, _pointer, _int64, _int64]
    kernels.fd_keep.restype = None
    kernels.fd_draw.argtypes = [_pointer, _int64, _int64, _double, _pointer]
    kernels.fd_draw.restype = _int64
    kernels.fd_forward_runs_here.argtypes = []
    if runs_forward(kernels):
        kernels.fd_linear.argtypes = [_pointer, _pointer, _int64, _pointer, _int64]
        sized: list[Any] = [_pointer, _int64]
        kernels.fd_forward.argtypes = [_pointer, *sized * 3, _pointer, _int64]
    return kernels


def runs_forward(kernels: ctypes.CDLL) -> bool:
    """True where the CPU has the bf16 arithmetic of the compiled forward (avx512_bf16)."""
    return bool(kernels.fd_forward_runs_here())
