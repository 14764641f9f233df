"""The attention backend on top of the compiled kernel (attention_native.c)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch

from verifier_service.model.attention import Kv, KvShape, Rows

# Keys per tile in the kernel: caches are padded to a multiple of it.
_TILE = 64
_LANES = 16

_pointer, _int64 = ctypes.c_void_p, ctypes.c_int64


class _Segment(ctypes.Structure):
    _fields_ = (
        ("keys", _pointer),
        ("values", _pointer),
        ("layer_bytes", _int64),
        ("capacity", _int64),
        ("start", _int64),
        ("first", _int64),
        ("rows", _int64),
        ("nodes", _int64),
        ("parents", _pointer),
    )


class NativeBatch(ctypes.Structure):
    """The kernel's view of one batch; it lives as long as what it points to."""

    _fields_ = (
        ("heads", _int64),
        ("kv_heads", _int64),
        ("head_dim", _int64),
        ("wide", _int64),
        ("count", _int64),
        ("scale", ctypes.c_float),
        ("cos", _pointer),
        ("sin", _pointer),
        ("segments", _pointer),
    )


def supports(head_dim: int, dtype: torch.dtype) -> bool:
    """True where the kernel takes heads of this size and type."""
    return head_dim % (2 * _LANES) == 0 and dtype in (torch.bfloat16, torch.float32)


class NativeAttention:
    """The compiled kernel: fixed-order arithmetic for each row, so row-invariant on every CPU.

    Keys are stored transposed, [layers, kv_heads, D, capacity].
    """

    name = "native"

    def __init__(self, kernels: ctypes.CDLL) -> None:
        self._kernels = kernels

    def alloc(self, shape: KvShape, capacity: int) -> Kv:
        padded = -(-capacity // _TILE) * _TILE
        layers, heads, head_dim = shape.layers, shape.kv_heads, shape.head_dim
        return Kv(
            torch.empty((layers, heads, head_dim, padded), dtype=shape.dtype),
            torch.empty((layers, heads, padded, head_dim), dtype=shape.dtype),
        )

    def keep(self, kv: Kv, start: int, rows: Sequence[int]) -> None:
        layers, heads, head_dim, capacity = kv.keys.shape
        self._kernels.fd_keep(
            kv.keys.data_ptr(),
            kv.values.data_ptr(),
            layers * heads,
            head_dim,
            capacity,
            start,
            (ctypes.c_int32 * len(rows))(*rows),
            len(rows),
            kv.keys.dtype == torch.float32,
        )

    def prepare(
        self,
        batch: Sequence[Rows],
        *,
        heads: int,
        kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        scale: float,
        rotary: tuple[torch.Tensor, torch.Tensor] | None = None,
    ) -> NativeBatch:
        """Return the batch as the kernel takes it, for every layer of one forward.

        rotary holds cos and sin, float32 [positions, D / 2]; with it q and k come unrotated.
        """
        segments = (_Segment * len(batch))()
        trees = []
        for segment, (kv, start, first, rows, parents) in zip(segments, batch, strict=True):
            segment.keys = kv.keys.data_ptr()
            segment.values = kv.values.data_ptr()
            segment.layer_bytes = kv.keys[0].nbytes
            segment.capacity = kv.keys.shape[3]
            segment.start, segment.first, segment.rows = start, first, rows
            if parents:
                trees.append((ctypes.c_int32 * len(parents))(*parents))
                segment.nodes, segment.parents = len(parents), ctypes.addressof(trees[-1])
        prepared = NativeBatch(
            heads,
            kv_heads,
            head_dim,
            dtype == torch.float32,
            len(batch),
            scale,
            rotary[0].data_ptr() if rotary else None,
            rotary[1].data_ptr() if rotary else None,
            ctypes.addressof(segments),
        )
        prepared.keep = segments, trees
        return prepared

    def attend(
        self,
        layer: int,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        batch: Sequence[Rows],
        scale: float,
    ) -> torch.Tensor:
        heads, rows, head_dim = q.shape
        prepared = self.prepare(
            batch,
            heads=heads,
            kv_heads=k.shape[0],
            head_dim=head_dim,
            dtype=q.dtype,
            scale=scale,
        )
        q, k, v = (x if x.stride(2) == 1 else x.contiguous() for x in (q, k, v))
        out = q.new_zeros(rows, heads, head_dim)
        self.run(prepared, layer, q, k, v, out)
        return out

    def run(
        self,
        prepared: NativeBatch,
        layer: int,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        out: torch.Tensor,
    ) -> None:
        """Attend over q, k, v [heads, rows, D] (last stride 1) into out [rows, heads, D]."""
        failed = self._kernels.fd_attend(
            ctypes.addressof(prepared),
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
