"""The attention backend on top of the compiled kernel (verifier/attention.c)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import NamedTuple

import torch

from foredraft_kernels.structs import Batch, Segment
from verifier_service.models.attention.reference import Kv, KvShape, Rows
from verifier_service.models.compiled.segments import segment_of, segments_of

_LANES = 16


class Segments(NamedTuple):
    """A batch as the kernel reads it: `number` records, which point into what is held.

    The pool itself is among it.
    """

    described: ctypes.Array[Segment]
    held: object
    number: int


def supports(head_dim: int, dtype: torch.dtype) -> bool:
    """True where the kernel takes heads of this size and type."""
    return head_dim % (2 * _LANES) == 0 and dtype in (torch.bfloat16, torch.float32)


class NativeAttention:
    """The compiled kernel: fixed-order arithmetic for each row, so row-invariant on every CPU.

    Keys are stored transposed, [blocks, layers, kv_heads, D, block_tokens].
    """

    name = "native"

    def __init__(self, kernels: ctypes.CDLL) -> None:
        self._kernels = kernels

    def alloc(self, shape: KvShape, blocks: int, block_tokens: int) -> Kv:
        per_head = (blocks, shape.layers, shape.kv_heads)
        # Written now: an empty tensor takes its memory page by page, under load.
        return Kv(
            torch.zeros((*per_head, shape.head_dim, block_tokens), dtype=shape.dtype),
            torch.zeros((*per_head, block_tokens, shape.head_dim), dtype=shape.dtype),
            block_tokens,
        )

    def keep(self, kv: Kv, blocks: Sequence[int], start: int, rows: Sequence[int]) -> None:
        _, layers, heads, head_dim, _ = kv.keys.shape
        segment, held = segment_of(kv, blocks, start, rows)
        self._kernels.fd_keep(
            segment,
            layers,
            heads,
            head_dim,
            start,
            (ctypes.c_int32 * len(rows))(*rows),
            len(rows),
            kv.keys.itemsize,
        )
        del held  # segment points into it

    def plan(self, batch: Sequence[Rows], rows: int) -> Segments:
        described, held = segments_of(batch)
        return Segments(described, (batch, held), len(batch))

    def attend(
        self,
        layer: int,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        plan: Segments,
        scale: float,
    ) -> torch.Tensor:
        heads, rows, head_dim = q.shape
        q, k, v = (x if x.stride(2) == 1 else x.contiguous() for x in (q, k, v))
        out = q.new_zeros(rows, heads, head_dim)
        described = Batch(
            heads,
            k.shape[0],
            head_dim,
            q.dtype == torch.float32,
            plan.number,
            scale,
            ctypes.addressof(plan.described),
        )
        failed = self._kernels.fd_attend(
            ctypes.addressof(described),
            layer,
            q.data_ptr(),
            q.stride(0),
            q.stride(1),
            k.data_ptr(),
            k.stride(0),
            k.stride(1),
            v.data_ptr(),
            v.stride(0),
            v.stride(1),
            out.data_ptr(),
        )
        if failed:
            raise MemoryError("the attention kernel found no scratch memory")
        return out

    def batches(self, rows: int) -> Sequence[Sequence[int]]:
        return []
