"""KV caches of the compiled forward: panels, as verifier/panel_attention.inl reads them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch

from foredraft_kernels.structs import COLUMNS, VERIFIER_MAX_HEAD_DIM
from verifier_service.models.attention.reference import Kv, KvShape
from verifier_service.models.compiled.segments import segment_of


def fits_panels(shape: KvShape) -> bool:
    """Return whether heads of this size and type can be cached in panels."""
    whole = shape.head_dim % COLUMNS == 0 and shape.head_dim <= VERIFIER_MAX_HEAD_DIM
    return whole and shape.dtype == torch.bfloat16 and shape.device.type == "cpu"


class PanelCaches:
    """Keys and values in bf16; in a block, each layer and head is a piece of its own, in panels."""

    def __init__(self, kernels: ctypes.CDLL, isa: str) -> None:
        self._keep = getattr(kernels, f"fd_keep_panels_{isa}")

    def alloc(self, shape: KvShape, blocks: int, block_tokens: int) -> Kv:
        size = (blocks, shape.layers, shape.kv_heads, block_tokens, shape.head_dim)
        # Written now: an empty tensor takes its memory page by page, under load.
        keys, values = (torch.zeros(size, dtype=shape.dtype) for _ in "kv")
        return Kv(keys, values, block_tokens)

    def keep(self, kv: Kv, blocks: Sequence[int], start: int, rows: Sequence[int]) -> None:
        _, layers, heads, _, head_dim = kv.keys.shape
        segment, held = segment_of(kv, blocks, start, rows)
        self._keep(
            segment,
            layers,
            heads,
            head_dim,
            start,
            (ctypes.c_int32 * len(rows))(*rows),
            len(rows),
        )
        del held  # segment points into it
