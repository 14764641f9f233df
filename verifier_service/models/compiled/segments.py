"""A batch as the compiled kernels read it."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Sequence
from typing import Any

from foredraft.decoding.tree import is_tree
from foredraft_kernels.structs import Segment
from verifier_service.models.attention.reference import Kv, Rows


def segments_of(batch: Sequence[Rows]) -> tuple[ctypes.Array[Segment], Any]:
    """Return the segments (structs.Segment) of a batch, and what they point into.

    Raise ValueError where rows leave their blocks, blocks their pool, parents are no tree, or
    there are more mutual rows or positions than rows: the kernel trusts them.
    """
    blocks = array("i", [block for rows in batch for block in rows.blocks])
    parents = array("i", [parent for rows in batch for parent in rows.parents])
    places = array("i", [place for rows in batch for place in rows.positions])
    at_blocks, at_parents = blocks.buffer_info()[0], parents.buffer_info()[0]
    at_places = places.buffer_info()[0]
    segments = (Segment * len(batch))()
    # Nearly always one KV for all; its tensors' addresses and strides take long to read.
    cache: Kv | None = None
    where: tuple[int, ...] = ()
    pool = 0
    for number, (kv, table, start, first, rows, tree, mutual, positions) in enumerate(batch):
        if kv is not cache:
            cache, where, pool = kv, _where(kv), len(kv.keys)
        nodes, capacity = len(tree), len(table) * kv.block_tokens
        if not 0 <= start <= capacity - rows or nodes > rows or not is_tree(tree, nodes):
            raise ValueError(f"{start} + {rows} rows, {nodes} of them a tree, in {capacity}")
        if not 0 <= mutual <= rows - nodes or len(positions) not in (0, rows):
            raise ValueError(f"{mutual} mutual rows and {len(positions)} positions of {rows} rows")
        if not 0 <= min(table) <= max(table) < pool:
            raise ValueError(f"blocks {table} of {pool}")
        place = (start, first, rows, nodes, mutual)
        at_own = at_places if positions else None
        segments[number] = Segment(*where, *place, at_blocks, at_parents, at_own)
        at_blocks += len(table) * blocks.itemsize
        at_parents += nodes * parents.itemsize
        at_places += len(positions) * places.itemsize
    return segments, (blocks, parents, places)


def _where(kv: Kv) -> tuple[int, ...]:
    """Return where a segment's keys and values begin, and the bytes and tokens of its blocks."""
    keys, size = kv.keys, kv.keys.itemsize
    strides = (keys.stride(1) * size, keys.stride(0) * size)
    return (keys.data_ptr(), kv.values.data_ptr(), *strides, kv.block_tokens)


def segment_of(
    kv: Kv, blocks: Sequence[int], start: int, rows: Sequence[int]
) -> tuple[ctypes.Array[Segment], Any]:
    """Return the segment of a text whose rows from start on are moved, and as above."""
    return segments_of([Rows(kv, blocks, start, 0, 1 + max(rows, default=0))])
