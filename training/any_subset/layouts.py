"""What a training step asks: which tokens of each text are given, and the order of the others."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import torch
from torch import Tensor


class Order(StrEnum):
    """How masked tokens are ordered: by position (Eq. 4, the binary lattice), or at random."""

    LATTICE = "lattice"
    ANY = "any"


@dataclass(frozen=True)
class MaskRates:
    """The least and the greatest share of a text's tokens that are masked, each in (0, 1)."""

    low: float
    high: float


LAST_RATES = MaskRates(0.90, 0.99)
FIRST_RATES = MaskRates(0.15, 0.15)
"""Where the warm-up of the masking rate begins (App. E.2)."""
HOLE_RATES = MaskRates(0.05, 0.60)
"""The rates of texts whose masked tokens lie in holes: what infilling asks for (App. E.6)."""
MOST_HOLES = 3


def mask_rates(last: MaskRates, progress: float, warmup: float) -> MaskRates:
    """The rates when the share `progress` of a training is done: linear from FIRST_RATES to `last`
    over the share `warmup` (App. E.2), at once if that is 0.
    """
    done = min(1.0, progress / warmup) if warmup > 0 else 1.0
    low = FIRST_RATES.low + done * (last.low - FIRST_RATES.low)
    high = FIRST_RATES.high + done * (last.high - FIRST_RATES.high)
    return MaskRates(low, high)


@dataclass(frozen=True)
class InfillBatch:
    """Texts with their layouts."""

    tokens: Tensor
    """int64 [rows, length], by position"""
    order: Tensor
    """int64 [rows, length]: each position's place in the generation order, the prompt first"""
    given: Tensor
    """int64 [rows]: m, the tokens of the prompt"""

    @property
    def masked(self) -> int:
        """Tokens to predict, in all rows."""
        return int(self.tokens.numel() - self.given.sum())

    def part(self, rows: slice) -> InfillBatch:
        """The batch of these rows."""
        return InfillBatch(self.tokens[rows], self.order[rows], self.given[rows])

    def split(self, rows: int) -> list[InfillBatch]:
        """Micro-batches of at most `rows` rows."""
        return [self.part(slice(at, at + rows)) for at in range(0, len(self.tokens), rows)]


def given_counts(
    random: np.random.Generator, rows: int, length: int, rates: MaskRates
) -> np.ndarray:
    """Prompt lengths m, int64 [rows], with N - m uniform between the rates of N = `length`.

    Each is of a stratum of its own, which keeps the batch's mean from varying (App. E.1). At least
    one token is given and one masked.
    """
    share = (random.permutation(rows) + random.random(rows)) / rows
    low, high = length * (1 - rates.high), length * (1 - rates.low)
    return np.rint(low + share * (high - low)).astype(np.int64).clip(1, length - 1)


def scattered(random: np.random.Generator, given: np.ndarray, length: int) -> np.ndarray:
    """Which tokens are masked, bool [rows, length], with prompts of `given` [rows] tokens drawn
    uniformly.
    """
    places = random.permuted(np.tile(np.arange(length), (len(given), 1)), axis=1)
    return places >= given[:, None]


def in_holes(random: np.random.Generator, given: np.ndarray, length: int) -> np.ndarray:
    """Which tokens are masked, bool [rows, length], in 1 to MOST_HOLES runs of random lengths."""
    masked = np.zeros((len(given), length), dtype=bool)
    for row, known in zip(masked, given, strict=True):
        holes = min(int(random.integers(1, MOST_HOLES + 1)), length - int(known))
        cuts = np.sort(random.choice(length - known - 1, holes - 1, replace=False)) + 1
        sizes = np.diff(cuts, prepend=0, append=length - known)
        before = np.sort(random.integers(0, known + 1, holes))
        ends = before + np.cumsum(sizes)
        for size, end in zip(sizes, ends, strict=True):
            row[end - size : end] = True
    return masked


def orders(random: np.random.Generator, masked: np.ndarray, order: Order) -> np.ndarray:
    """Generation orders, int64 [rows, length]: the prompt's tokens, then those of `masked`."""
    rows, length = masked.shape
    places = np.tile(np.arange(length), (rows, 1))
    if order is Order.ANY:
        places = random.permuted(places, axis=1)
    return np.argsort(np.argsort(places + length * masked, axis=1), axis=1)


def with_layouts(
    tokens: Tensor, random: np.random.Generator, rates: MaskRates, order: Order, holes: float = 0.0
) -> InfillBatch:
    """The texts [rows, length] with layouts drawn for each of them.

    The share `holes` of the rows has its masked tokens in holes, by HOLE_RATES; the others have
    them scattered, by `rates` (Sec. 6).
    """
    rows, length = tokens.shape
    with_holes = random.permutation(rows) < round(holes * rows)
    given = np.empty(rows, dtype=np.int64)
    masked = np.empty((rows, length), dtype=bool)
    for which, of_rates, draw in (
        (~with_holes, rates, scattered),
        (with_holes, HOLE_RATES, in_holes),
    ):
        given[which] = given_counts(random, int(which.sum()), length, of_rates)
        masked[which] = draw(random, given[which], length)
    placed = torch.from_numpy(orders(random, masked, order))
    return InfillBatch(tokens, placed.to(tokens.device), torch.from_numpy(given).to(tokens.device))
