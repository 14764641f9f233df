"""Batches for distillation: clean continuations, packed mask blocks and what each mask slot should
predict.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from training.embedded.generate import Continuations

BLOCKS = (4, 8, 16)
BLOCK_SHARES = (0.15, 0.4, 0.45)


@dataclass(frozen=True)
class BlockBatch:
    """`b` sequences of `n` clean tokens followed by `m` mask rows; every tensor is [b, ...]."""

    tokens: Tensor
    """int64 [b, n + m]; the ids of mask rows are 0"""
    positions: Tensor
    """int64 [b, n + m]"""
    slots: Tensor
    """int64 [b, n + m]; -1 for clean rows"""
    visible: Tensor
    """bool [b, 1, m, n + m]: what each mask row attends to"""
    previous: Tensor
    """int64 [b, m]: real token before each slot's position"""
    label: Tensor
    """int64 [b, m]: real token at each slot's position"""
    top_ids: Tensor
    """int64 [b, m, TOP]"""
    top_probs: Tensor
    """fp32 [b, m, TOP], the target's distribution renormalised over its stored candidates"""
    weight: Tensor
    """fp32 [b, m]: gamma^slot, 0 beyond the end of the text"""

    def split(self, rows: int) -> list[BlockBatch]:
        """Micro-batches of at most `rows` sequences."""
        columns = zip(*(value.split(rows) for value in vars(self).values()), strict=True)
        return [BlockBatch(*column) for column in columns]


def pack_blocks(
    random: np.random.Generator, first: int, end: int, rows: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Fills exactly `rows` mask rows with blocks of random length at random anchors in [first,
    end).

    Returns int64 (anchor, slot, block number), each [rows]; the last block is cut at `rows`.
    """
    anchor, slot, block = (np.empty(rows, np.int64) for _ in range(3))
    start = number = 0
    while start < rows:
        size = min(int(random.choice(BLOCKS, p=BLOCK_SHARES)), rows - start)
        anchor[start : start + size] = random.integers(first, end)
        slot[start : start + size] = np.arange(size)
        block[start : start + size] = number
        start, number = start + size, number + 1
    return anchor, slot, block


def make_batch(
    data: Continuations,
    chosen: np.ndarray,
    mask_rows: int,
    gamma: float,
    random: np.random.Generator,
) -> BlockBatch:
    """Builds the batch of the rows `chosen` of a shard; anchors lie in the generated part."""
    total = data.tokens.shape[1]
    packed = [pack_blocks(random, data.prompt, total, mask_rows) for _ in chosen]
    anchor, slot, block = (np.stack(column) for column in zip(*packed, strict=True))
    position = anchor + slot
    real = np.minimum(position, total - 1)
    clean = data.tokens[chosen].astype(np.int64)
    rows = np.arange(len(chosen))[:, None]
    sees_clean = np.arange(total)[None, None, :] < anchor[:, :, None]
    sees_block = block[:, :, None] == block[:, None, :]
    wide = np.broadcast_to(np.arange(total), clean.shape)
    log_probs = torch.from_numpy(
        data.top_log_probs[chosen[:, None], real - data.prompt].astype(np.float32)
    )
    return BlockBatch(
        tokens=torch.from_numpy(np.concatenate((clean, np.zeros_like(slot)), axis=1)),
        positions=torch.from_numpy(np.concatenate((wide, position), axis=1)),
        slots=torch.from_numpy(np.concatenate((np.full_like(clean, -1), slot), axis=1)),
        visible=torch.from_numpy(np.concatenate((sees_clean, sees_block), axis=2)).unsqueeze(1),
        previous=torch.from_numpy(clean[rows, real - 1]),
        label=torch.from_numpy(clean[rows, real]),
        top_ids=torch.from_numpy(
            data.top_ids[chosen[:, None], real - data.prompt].astype(np.int64)
        ),
        top_probs=log_probs.softmax(-1),
        weight=torch.from_numpy(np.where(position < total, gamma**slot, 0.0).astype(np.float32)),
    )


class Shards:
    """All continuations of a folder, grouped by length; a step draws from one group only."""

    def __init__(self, folder: Path, seed: int) -> None:
        """Raises FileNotFoundError when nothing was generated."""
        paths = sorted(folder.glob("[0-9]*[0-9].npz"))
        if not paths:
            raise FileNotFoundError(f"no continuations in {folder}")
        grouped: dict[int, list[Continuations]] = {}
        for path in paths:
            shard = Continuations.load(path)
            grouped.setdefault(shard.tokens.shape[1], []).append(shard)
        self.groups = [_join(grouped[length]) for length in sorted(grouped)]
        self.shares = np.array([len(group.tokens) for group in self.groups], dtype=float)
        self.shares /= self.shares.sum()
        self.orders = [
            np.random.default_rng([seed, index]).permutation(len(group.tokens))
            for index, group in enumerate(self.groups)
        ]
        self.used = [0] * len(self.groups)
        self.seed = seed

    def draw(
        self, count: int, step: int, rank: int, world: int, mask_rows: int, gamma: float
    ) -> BlockBatch:
        """This rank's part of step `step`'s batch of `count` sequences."""
        group = int(
            np.random.default_rng([self.seed, 11, step]).choice(len(self.groups), p=self.shares)
        )
        order, start = self.orders[group], self.used[group]
        chosen = order[np.arange(start, start + count) % order.size][rank::world]
        self.used[group] += count
        return make_batch(
            self.groups[group],
            chosen,
            mask_rows,
            gamma,
            np.random.default_rng([self.seed, 13, step, rank]),
        )

    def samples(self, count: int, mask_rows: int) -> list[BlockBatch]:
        """One batch of `count` sequences of every length."""
        random = np.random.default_rng(0)
        return [
            make_batch(group, np.arange(count), mask_rows, 1.0, random) for group in self.groups
        ]


def _join(shards: list[Continuations]) -> Continuations:
    """Concatenates shards of the same lengths."""
    return Continuations(
        np.concatenate([shard.tokens for shard in shards]),
        shards[0].prompt,
        np.concatenate([shard.temperature for shard in shards]),
        np.concatenate([shard.top_ids for shard in shards]),
        np.concatenate([shard.top_log_probs for shard in shards]),
    )
