"""The attention backend on top of torch's FlexAttention, for CUDA.

All sessions' keys and values stay where they are in the pool: of it a tile of rows (flex_plan.py)
visits the blocks of its own session, as they are listed for it, and a mask hides the rest. On CUDA
that is one compiled kernel; on a CPU it runs operation by operation over the whole pool, slowly,
which is good for tests. The query heads that share a key's head are rows of one tile, so the kernel
reads a key once for all of them and can divide a few rows' keys among its processors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from foredraft.limits import MAX_DRAFT
from verifier_service.models.attention.flex_plan import (
    WORDS,
    PassShape,
    fields,
    fill,
    shapes,
    tiles_of,
)
from verifier_service.models.attention.reference import Kv, KvShape, Rows
from verifier_service.models.device_arrays import DeviceArrays

# Rows of a tile that FlexAttention lists blocks for at once are a multiple of it.
_LISTED_ROWS = 128
# The kernel reads a part of a block at a time: one of 128 tokens, which is what it takes for some
# heads, is more than a block. So many bytes leave room for several in flight.
_READ_BYTES = 1 << 14
# For each shape of tiles and kind of layer, a kernel is compiled.
_MOST_KERNELS = 256

Kernel = Callable[..., torch.Tensor]


class FlexPlan:
    """A pass of some shape: its arrays, and the pool whose blocks they name."""

    def __init__(self, shape: PassShape, kv: Kv, arrays: DeviceArrays) -> None:
        self.shape = shape
        self.kv = kv
        self.arrays = arrays


class FlexAttention:
    """FlexAttention over a pool of blocks.

    windows holds, for each layer, how many tokens a row sees, as in MatmulAttention; longest is how
    many tokens a text has at most.
    """

    name = "flex"

    def __init__(self, windows: Sequence[int | None], longest: int, kernel: Kernel) -> None:
        self._kinds = tuple(dict.fromkeys(windows)) or (None,)
        self._kind_of = [self._kinds.index(window) for window in windows]
        # The rows of a tree lie one after the other, however shallow it is.
        self._most_rows = longest + MAX_DRAFT
        self._kernel = kernel

    def alloc(self, shape: KvShape, blocks: int, block_tokens: int) -> Kv:
        # Zeros, because a product with what is hidden is zero only if that is finite. One block
        # more than asked for takes the KV of rows that are filler.
        size = (shape.layers, shape.kv_heads, (blocks + 1) * block_tokens, shape.head_dim)
        keys, values = (torch.zeros(size, dtype=shape.dtype, device=shape.device) for _ in "kv")
        return Kv(keys, values, block_tokens)

    def keep(self, kv: Kv, blocks: Sequence[int], start: int, rows: Sequence[int]) -> None:
        size, device = kv.block_tokens, kv.keys.device
        to, moved = (
            torch.tensor([blocks[at // size] * size + at % size for at in places], device=device)
            for places in (range(start, start + len(rows)), [start + row for row in rows])
        )
        for cache in (kv.keys, kv.values):
            cache.index_copy_(2, to, cache.index_select(2, moved))

    def reserve(self, shape: PassShape, kv: Kv) -> FlexPlan:
        """Return an empty plan for passes of a shape, at addresses that stay."""
        pool = kv.keys.shape[2] // kv.block_tokens
        table = min(-(-self._most_rows // kv.block_tokens), pool)
        arrays = DeviceArrays(fields(shape, pool, table, self._kinds), kv.keys.device)
        return FlexPlan(shape, kv, arrays)

    def fill(self, plan: FlexPlan, batch: Sequence[Rows]) -> None:
        """Make a plan that of a batch of its shape; nothing of an earlier batch is left in it."""
        plan.arrays.clear()
        fill(plan.arrays.host, batch, plan.kv.block_tokens, self._kinds)
        plan.arrays.send()

    def plan(self, batch: Sequence[Rows], rows: int) -> FlexPlan:
        tiles, width = tiles_of([one.rows for one in batch])
        plan = self.reserve(PassShape(rows, tiles, width), batch[0].kv)
        self.fill(plan, batch)
        return plan

    def attend(
        self,
        layer: int,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        plan: FlexPlan,
        scale: float,
    ) -> torch.Tensor:
        heads, rows, head_dim = q.shape
        kv_heads, (_, tiles, width) = len(k), plan.shape
        group = heads // kv_heads
        arrays = plan.arrays.device
        keys, values = plan.kv.keys[layer], plan.kv.values[layer]
        keys.index_copy_(1, arrays["kept"], k)
        values.index_copy_(1, arrays["kept"], v)
        shared = q.view(kv_heads, group, rows, head_dim).transpose(1, 2)
        queries = shared.index_select(1, arrays["row"]).view(kv_heads, tiles, -1, head_dim)
        kind = self._kind_of[layer] if self._kind_of else 0
        mixed = self._kernel(
            queries.transpose(0, 1),
            keys[None],
            values[None],
            arrays["place"],
            arrays["table"],
            arrays["root"],
            arrays[f"seen{kind}"],
            arrays[f"count{kind}"],
            arrays[f"first{kind}"],
            arrays[f"branch{kind}"],
            block_tokens=plan.kv.block_tokens,
            scale=scale,
        )
        mixed = mixed.transpose(0, 1).reshape(kv_heads, tiles * width, group, head_dim)
        return mixed.index_select(1, arrays["slot"]).transpose(0, 1).flatten(1, 2)

    def batches(self, rows: int) -> Sequence[Sequence[int]]:
        """Return a batch for each shape of tiles, so that its kernel is compiled."""
        return list({shape[1:]: batch for shape, batch in shapes(2 * rows)}.values())


def attend_tiles(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    place: torch.Tensor,
    table: torch.Tensor,
    root: torch.Tensor,
    seen: torch.Tensor,
    count: torch.Tensor,
    first: torch.Tensor,
    branch: torch.Tensor,
    *,
    block_tokens: int,
    scale: float,
) -> torch.Tensor:
    """Return attention of q [tiles, kv_heads, width * group, D] over keys [1, kv_heads, pool, D].

    The other tensors are a plan's (flex_plan.fields); a row that sees nothing is zero.
    """
    tiles, width = root.shape
    rows, pool = q.shape[2], keys.shape[2]
    group = rows // width

    def sees(
        tile: torch.Tensor, _: torch.Tensor, query: torch.Tensor, key: torch.Tensor
    ) -> torch.Tensor:
        row, block = query // group, key // block_tokens
        number = place[block]
        at = number * block_tokens + key % block_tokens
        node = at - root[tile, row]
        word = branch[tile, row, (node >> 5).clamp(0, WORDS - 1)]
        own = (node >= 0) & (node < 32 * WORDS) & ((word >> (node & 31)) & 1 == 1)
        before = (node < 0) & (at >= first[tile, row])
        # Blocks of other sessions may be in the pass, too.
        return (number >= 0) & (table[tile, number.clamp(min=0)] == block) & (before | own)

    mask = BlockMask.from_kv_blocks(
        count.view(tiles, 1, 1),
        seen.view(tiles, 1, 1, -1),
        BLOCK_SIZE=(-(-rows // _LISTED_ROWS) * _LISTED_ROWS, block_tokens),
        mask_mod=sees,
        seq_lengths=(rows, pool),
        compute_q_blocks=False,
    )
    read = _READ_BYTES // (keys.shape[3] * keys.itemsize)
    mixed: torch.Tensor = flex_attention(
        q,
        keys,
        values,
        block_mask=mask,
        scale=scale,
        kernel_options={"BLOCK_N": min(64, 1 << (read.bit_length() - 1))},
    )
    return mixed


def flex(windows: Sequence[int | None], longest: int, device: str) -> FlexAttention:
    """Return the backend for a device, on CUDA with its kernel compiled."""
    compiled: Callable[[Kernel], Kernel] = partial(
        torch.compile, fullgraph=True, dynamic=False, recompile_limit=_MOST_KERNELS
    )
    kernel: Kernel = attend_tiles
    return FlexAttention(windows, longest, kernel if device == "cpu" else compiled(kernel))
