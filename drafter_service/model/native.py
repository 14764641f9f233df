"""Loads the compiled code: an optional extension module, without Python in it, beside this."""

from __future__ import annotations

import ctypes
import functools
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

_pointer, _int64 = ctypes.c_void_p, ctypes.c_int64


class Linear(ctypes.Structure):
    """native.h's linear."""

    _fields_ = (("tiles", _pointer), ("scales", _pointer), ("in", _int64), ("out", _int64))


class Layer(ctypes.Structure):
    """native.h's layer."""

    _fields_ = tuple((name, Linear) for name in ("qkv", "out", "gate_up", "down"))


class Model(ctypes.Structure):
    """native.h's model; it must not outlive what it points to."""

    _fields_ = (
        *(
            (name, _int64)
            for name in (
                "vocab",
                "hidden",
                "heads",
                "head_dim",
                "inner",
                "num_layers",
                "rank",
                "eos",
                "mask",
                "candidates",
                "slots",
                "capacity",
            )
        ),
        ("layers", ctypes.POINTER(Layer)),
        ("head", Linear),
        ("edge_gate", Linear),
        *(
            (name, _pointer)
            for name in (
                "embedding",
                "mask_slots",
                "mask_qkv",
                "cos",
                "sin",
                "edge_bias",
                "edge_previous",
                "edge_next",
            )
        ),
        ("eps", ctypes.c_float),
    )


@functools.cache
def built() -> ctypes.CDLL | None:
    """Return the compiled code, or None where it was not built; its searches run on any CPU."""
    here = Path(__file__).parent
    path = next((p for s in EXTENSION_SUFFIXES if (p := here / f"_native{s}").is_file()), None)
    if path is None:
        return None
    kernels = ctypes.CDLL(str(path))
    for isa in isas(kernels):
        scratch = getattr(kernels, f"fd_draft_scratch_{isa}")
        scratch.argtypes, scratch.restype = [_pointer, _int64, _int64], _int64
        draft = getattr(kernels, f"fd_draft_{isa}")
        draft.argtypes, draft.restype = [_pointer, _pointer, _int64, *[_pointer] * 7], None
    kernels.fd_gumbel.argtypes = [_pointer, _int64, _pointer, _int64, _pointer]
    kernels.fd_gumbel.restype = None
    kernels.fd_beam.argtypes = [_pointer] * 4
    kernels.fd_beam.restype = _int64
    kernels.fd_tree.argtypes = [_pointer, _int64, *[_pointer] * 3]
    kernels.fd_tree.restype = _int64
    return kernels


def isas(kernels: ctypes.CDLL) -> list[str]:
    """Return the instruction sets that this CPU runs the compiled forward with, the best first.

    avx512 needs its int8 products (VNNI); the bits of results are the same with each.
    """
    return [isa for isa in ("avx512", "avx2") if getattr(kernels, f"fd_draft_runs_{isa}")()]
