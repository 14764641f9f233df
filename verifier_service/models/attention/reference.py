"""Attention over the sessions of one batch, each with its own KV cache: the port, the reference.

The numerics that count are row invariance: a row's result must not depend on which other rows or
sessions share the call (docs/architecture.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeVar

import torch

from foredraft.decoding.tree import branch

PlanT = TypeVar("PlanT")


class KvShape(NamedTuple):
    """What a KV cache is made of."""

    layers: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype
    device: torch.device


class Kv(NamedTuple):
    """The pool of blocks: keys and values, laid out as the backend likes.

    A layer of a head of a block holds block_tokens tokens.
    """

    keys: torch.Tensor
    values: torch.Tensor
    block_tokens: int


class Rows(NamedTuple):
    """Rows [first, first + rows) of the batch, for the cache's rows from start on of one session.

    The cache's row r is row r % block_tokens of block blocks[r // block_tokens] of the pool. It is
    the position r in the text, but for the last len(parents) rows where these are a draft tree:
    they lie in node order, and a node sees the rows before the tree and its own branch. The first
    `mutual` rows, none of them of a tree, see each other. Positions, one a row, are where the rows
    stand in the text if not there.
    """

    kv: Kv
    blocks: Sequence[int]
    start: int
    first: int
    rows: int
    parents: Sequence[int] = ()
    mutual: int = 0
    positions: Sequence[int] = ()


class Caches(Protocol):
    """A way to lay caches out."""

    def alloc(self, shape: KvShape, blocks: int, block_tokens: int) -> Kv:
        """Return a pool of blocks; contents are undefined, block_tokens a multiple of 64."""

    def keep(self, kv: Kv, blocks: Sequence[int], start: int, rows: Sequence[int]) -> None:
        """Move row start + rows[i] of a text's cache, in every layer, to start + i; rows ascend."""


class Attention(Caches, Protocol[PlanT]):
    """An attention backend, which makes a plan of each pass once and follows it in every layer."""

    name: str

    def plan(self, batch: Sequence[Rows], rows: int) -> PlanT:
        """Return the plan of a pass of so many rows; those that no entry names are filler."""

    def attend(
        self,
        layer: int,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        plan: PlanT,
        scale: float,
    ) -> torch.Tensor:
        """Write k, v [kv_heads, rows, D] into the caches; return attention of q [heads, rows, D].

        Causal within each session; where the backend promises exact numerics, a tree's node sums
        over its branch in path order, so that it has the bits that it would have as the end of a
        path. The result is [rows, heads, D], finite but of no meaning in filler rows.
        """

    def batches(self, rows: int) -> Sequence[Sequence[int]]:
        """Return passes of up to so many rows to run before any session waits (paged.Forward)."""


class MatmulAttention:
    """The reference: matmul, softmax in fp32, matmul, one session at a time.

    In bf16 on AVX-512 CPUs its rows have the same bits for every chunking and batch
    (measured at start-up, see numerics.py). A lone row is computed as two, because the
    single-row product takes another path through the library.

    windows holds, for each layer, how many tokens a row sees, itself included: None for all; no
    entries mean that none has a window. What a window hides is masked, not left out: sums keep
    their order.
    """

    name = "matmul"

    def __init__(self, windows: Sequence[int | None] = ()) -> None:
        self._windows = windows

    def alloc(self, shape: KvShape, blocks: int, block_tokens: int) -> Kv:
        size = (blocks, shape.layers, shape.kv_heads, block_tokens, shape.head_dim)
        keys, values = (torch.zeros(size, dtype=shape.dtype, device=shape.device) for _ in "kv")
        return Kv(keys, values, block_tokens)

    def keep(self, kv: Kv, blocks: Sequence[int], start: int, rows: Sequence[int]) -> None:
        to = _places(kv, blocks, range(start, start + len(rows)))
        moved = _places(kv, blocks, [start + row for row in rows])
        for cache in (kv.keys, kv.values):
            cache[to[0], :, :, to[1]] = cache[moved[0], :, :, moved[1]]

    def plan(self, batch: Sequence[Rows], rows: int) -> Sequence[Rows]:
        return batch

    def attend(
        self,
        layer: int,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        plan: Sequence[Rows],
        scale: float,
    ) -> torch.Tensor:
        heads, rows, head_dim = q.shape
        window = self._windows[layer] if self._windows else None
        out = q.new_zeros(rows, heads, head_dim)
        for kv, blocks, start, first, count, parents, mutual, _ in plan:
            end = start + count
            block, place = _places(kv, blocks, range(start, end))
            kv.keys[block, layer, :, place] = k[:, first : first + count].transpose(0, 1)
            kv.values[block, layer, :, place] = v[:, first : first + count].transpose(0, 1)
            keys, values = (_in_order(cache[:, layer], blocks) for cache in (kv.keys, kv.values))
            trunk, root = first + count - len(parents), end - len(parents)
            if trunk > first:
                out[first:trunk] = _attend_one(
                    q[:, first:trunk],
                    keys[:, :root],
                    values[:, :root],
                    start,
                    scale,
                    window,
                    mutual,
                )
            for node in range(len(parents)):
                row = trunk + node
                seen = [*range(root), *(root + i for i in branch(parents, node))]
                out[row] = _attend_one(
                    q[:, row : row + 1],
                    keys[:, seen],
                    values[:, seen],
                    len(seen) - 1,
                    scale,
                    window,
                )
        return out

    def batches(self, rows: int) -> Sequence[Sequence[int]]:
        return []


def _places(
    kv: Kv, blocks: Sequence[int], rows: Sequence[int]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the blocks of a text's rows, and where they are in them."""
    device, size = kv.keys.device, kv.block_tokens
    block = torch.tensor([blocks[row // size] for row in rows], device=device)
    return block, torch.tensor([row % size for row in rows], device=device)


def _in_order(cache: torch.Tensor, blocks: Sequence[int]) -> torch.Tensor:
    """Return the cache [blocks, kv_heads, block_tokens, D] of a text: [kv_heads, tokens, D]."""
    found = cache[torch.tensor(blocks, device=cache.device)]
    return found.transpose(0, 1).flatten(1, 2)


def _attend_one(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    start: int,
    scale: float,
    window: int | None,
    mutual: int = 0,
) -> torch.Tensor:
    """Return causal attention of q [heads, n, D], rows from start on: [n, heads, D].

    The first `mutual` rows see each other.
    """
    heads, count, head_dim = q.shape
    kv_heads, end, _ = keys.shape
    group = heads // kv_heads
    if count == 1:
        q = q.expand(heads, 2, head_dim)
    n = q.shape[1]
    q = q.reshape(kv_heads, group * n, head_dim)
    scores = torch.matmul(q, keys.transpose(1, 2)).float() * scale
    # A lone row comes after all keys.
    if count > 1 or window is not None:
        own = torch.arange(start, end, device=q.device)[:, None]
        last = own.clamp_min(start + mutual - 1)
        others = torch.arange(end, device=q.device)
        hidden = others > last
        if window is not None:
            hidden |= others <= own - window
        scores.view(kv_heads, group, n, end).masked_fill_(hidden, float("-inf"))
    weights = torch.softmax(scores, dim=-1).to(q.dtype)
    mixed = torch.matmul(weights, values).view(heads, n, head_dim)
    return mixed[:, :count].transpose(0, 1)
