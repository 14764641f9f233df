"""The compiled kernels, an optional extension module beside this, and what they all are told."""

from __future__ import annotations

import ctypes
import functools
import logging
from array import array
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

from foredraft.decoding.tree import is_tree
from verifier_service.models.attention.reference import Kv, Rows

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
    kernels.fd_keep.argtypes = [_pointer, *[_int64] * 4, _pointer, _int64, _int64]
    kernels.fd_keep.restype = None
    kernels.fd_draw.argtypes = [_pointer, _int64, _int64, _double, _pointer]
    kernels.fd_draw.restype = _int64
    kernels.fd_choose.argtypes = [
        _pointer,
        *[_int64] * 3,
        *[_pointer] * 2,
        _double,
        *[_pointer] * 3,
    ]
    kernels.fd_choose.restype = None
    sized: list[Any] = [_pointer, _int64]
    for isa in isas(kernels):
        getattr(kernels, f"fd_linear_{isa}").argtypes = [
            _pointer,
            _pointer,
            _int64,
            _pointer,
            _int64,
        ]
        forward = getattr(kernels, f"fd_forward_{isa}")
        forward.argtypes = [_pointer, *sized * 3, _pointer, _pointer, _int64]
        keep = getattr(kernels, f"fd_keep_panels_{isa}")
        keep.argtypes, keep.restype = [_pointer, *[_int64] * 4, _pointer, _int64], None
    return kernels


def isas(kernels: ctypes.CDLL) -> list[str]:
    """Return the instruction sets that this CPU runs the compiled forward with, the best first.

    avx512 needs its bf16 arithmetic; the bits of results are the same with each.
    """
    return [isa for isa in ("avx512", "avx2") if getattr(kernels, f"fd_runs_{isa}")()]


def segments_of(batch: Sequence[Rows]) -> tuple[array[int], Any]:
    """Return native.h's segments of a batch, and what they point into.

    Raise ValueError where rows leave their blocks, blocks their pool, or parents are no tree: the
    kernel trusts them.
    """
    blocks = array("i", [block for rows in batch for block in rows.blocks])
    parents = array("i", [parent for rows in batch for parent in rows.parents])
    at_blocks, at_parents = blocks.buffer_info()[0], parents.buffer_info()[0]
    segments = array("q")
    for kv, table, start, first, rows, tree in batch:
        keys, nodes, capacity = kv.keys, len(tree), len(table) * kv.block_tokens
        if not 0 <= start <= capacity - rows or nodes > rows or not is_tree(tree, nodes):
            raise ValueError(f"{start} + {rows} rows, {nodes} of them a tree, in {capacity}")
        if not 0 <= min(table) <= max(table) < len(keys):
            raise ValueError(f"blocks {table} of {len(keys)}")
        where = (keys.data_ptr(), kv.values.data_ptr())
        strides = (keys.stride(1) * keys.itemsize, keys.stride(0) * keys.itemsize, kv.block_tokens)
        segments.extend((*where, *strides, start, first, rows, nodes, at_blocks, at_parents))
        at_blocks += len(table) * blocks.itemsize
        at_parents += nodes * parents.itemsize
    return segments, (blocks, parents)


def segment_of(
    kv: Kv, blocks: Sequence[int], start: int, rows: Sequence[int]
) -> tuple[array[int], Any]:
    """Return native.h's segment of a text whose rows from start on are moved, and as above."""
    return segments_of([Rows(kv, blocks, start, 0, 1 + max(rows, default=0))])
