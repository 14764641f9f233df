"""Texts of a step, and which of their tokens are masked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from training.corpus.encoded import encoded
from training.corpus.tokenizer import MASK_ID
from training.embedded.generate import Continuations

LEAST = 0.05
"""The least share t of a block's tokens that is masked on average; a loss counts 1/t."""


@dataclass(frozen=True)
class Noised:
    """Clean and noised tokens, int64, and 1/t where one is masked, else 0, fp32: [b, n] each."""

    clean: Tensor
    noised: Tensor
    weight: Tensor

    def rows(self, chosen: slice) -> Noised:
        """These sequences alone."""
        return Noised(self.clean[chosen], self.noised[chosen], self.weight[chosen])

    def to(self, device: str) -> Noised:
        """The same on a device."""
        return Noised(self.clean.to(device), self.noised.to(device), self.weight.to(device))

    def split(self, rows: int) -> list[Noised]:
        """Micro-batches of at most `rows` sequences."""
        count = len(self.clean)
        return [self.rows(slice(start, start + rows)) for start in range(0, count, rows)]


def noise(tokens: Tensor, block_length: int, random: np.random.Generator) -> Noised:
    """Masks each token of a block with probability t, t ~ U(LEAST, 1) for each block of [b, n]."""
    count, length = tokens.shape
    share = random.uniform(LEAST, 1, (count, length // block_length)).repeat(block_length, axis=1)
    masked = torch.from_numpy(random.random((count, length)) < share)
    weight = torch.from_numpy((1 / share).astype(np.float32)) * masked
    return Noised(tokens, torch.where(masked, MASK_ID, tokens), weight)


class Texts:
    """Windows of the core corpus, of the rest, and of the target's continuations where there are.

    Which ones a step has depends on its number alone, so that a run that goes on draws the same.
    """

    def __init__(self, data: Path, length: int, seed: int) -> None:
        self.length, self.seed = length, seed
        self.corpus = [encoded(data, name) for name in ("core", "rest")]
        shards = sorted((data / "continuations").glob("[0-9]*[0-9].npz"))
        self.continued = [Continuations.load(path).tokens.reshape(-1) for path in shards]

    def draw(self, count: int, core_share: float, continued_share: float, step: int) -> Tensor:
        """int64 [count, length]; without continuations their share is the corpus's."""
        random = np.random.default_rng([self.seed, 7, step])
        out = np.empty((count, self.length), dtype=np.int64)
        for row in out:
            continued, core, shard = random.random(3)
            stream = self.corpus[0 if core < core_share else 1]
            if self.continued and continued < continued_share:
                stream = self.continued[int(shard * len(self.continued))]
            start = int(random.integers(0, stream.size - self.length + 1))
            row[:] = stream[start : start + self.length]
        return torch.from_numpy(out)
