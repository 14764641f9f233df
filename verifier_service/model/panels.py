"""KV caches of the compiled forward: panels, as attention_bf16_native.c multiplies with them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch

from verifier_service.model.attention import Kv, KvShape

# linear.h and forward.h: the columns of a panel, and the largest head.
COLUMNS, MAX_HEAD_DIM = 32, 256


def fits_panels(shape: KvShape) -> bool:
    """Return whether heads of this size and type can be cached in panels."""
    whole = shape.head_dim % COLUMNS == 0 and shape.head_dim <= MAX_HEAD_DIM
    return whole and shape.dtype == torch.bfloat16 and shape.device.type == "cpu"


class PanelCaches:
    """Keys and values in bf16; each layer and head is a piece of its own, in panels of 32."""

    def __init__(self, kernels: ctypes.CDLL) -> None:
        self._keep = kernels.fd_keep_panels

    def alloc(self, shape: KvShape, capacity: int) -> Kv:
        padded = -(-capacity // COLUMNS) * COLUMNS
        size = (shape.layers, shape.kv_heads, padded, shape.head_dim)
        return Kv(torch.empty(size, dtype=shape.dtype), torch.empty(size, dtype=shape.dtype))

    def keep(self, kv: Kv, start: int, rows: Sequence[int]) -> None:
        layers, heads, capacity, head_dim = kv.keys.shape
        self._keep(
            kv.keys.data_ptr(),
            kv.values.data_ptr(),
            layers * heads,
            head_dim,
            capacity,
            start,
            (ctypes.c_int32 * len(rows))(*rows),
            len(rows),
        )
