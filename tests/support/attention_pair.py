"""An attention backend beside the reference, over the same passes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import torch

from verifier_service.models.attention.reference import (
    Attention,
    Kv,
    KvShape,
    MatmulAttention,
    Rows,
)

LONGEST, POOL, BLOCK = 512, 14, 64
CPU = torch.device("cpu")


class Pair:
    """A backend and the reference, which see the same passes."""

    def __init__(
        self,
        backend,
        *,
        heads=4,
        kv_heads=2,
        head_dim=32,
        windows=(),
        device=CPU,
        tolerance=1e-5,
    ) -> None:
        self._heads, self._shape = heads, KvShape(2, kv_heads, head_dim, torch.float32, device)
        self._tolerance = tolerance
        self._backends = (backend, MatmulAttention(windows))
        self._kvs = [one.alloc(self._shape, POOL, BLOCK) for one in self._backends]
        self._random = torch.Generator().manual_seed(0)

    def check(self, *batch: tuple) -> None:
        """Run a pass of (blocks, start, rows, parents) in both, with filler behind it."""
        total = sum(rows for _, _, rows, *_ in batch)
        filled = total + 3
        sizes = (self._heads, self._shape.kv_heads, self._shape.kv_heads)
        q, k, v = (
            torch.randn(filled, n, self._shape.head_dim, generator=self._random)
            .transpose(0, 1)
            .to(self._shape.device)
            for n in sizes
        )
        for layer in range(2):
            found, expected = (
                self._attend(backend, kv, layer, (q, k, v), batch)
                for backend, kv in zip(self._backends, self._kvs, strict=True)
            )
            found_rows, expected_rows = found[:total], expected[:total]
            torch.testing.assert_close(found_rows, expected_rows, atol=self._tolerance, rtol=0)
            assert found.isfinite().all()

    def keep(self, blocks, start, rows) -> None:
        for backend, kv in zip(self._backends, self._kvs, strict=True):
            backend.keep(kv, blocks, start, rows)

    def _attend(
        self,
        backend: Attention,
        kv: Kv,
        layer: int,
        qkv: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
        batch: Sequence[tuple[Any, ...]],
    ) -> torch.Tensor:
        (q, k, v), described, first = qkv, [], 0
        for blocks, start, rows, *parents in batch:
            described.append(Rows(kv, blocks, start, first, rows, *parents))
            first += rows
        plan = backend.plan(described, q.shape[1])
        return backend.attend(layer, q, k, v, plan, self._shape.head_dim**-0.5)


def tree(seed: int, nodes: int) -> list[int]:
    draw = random.Random(seed)
    return [draw.randrange(max(-1, i - 5), i) for i in range(nodes)]
