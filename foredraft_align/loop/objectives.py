"""What a drafter is trained to predict: soft labels, the real token, each slot's weight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from foredraft_align.drafter.student import Student, Wanted
from foredraft_align.loop.batches import Batch

_LEAST_T = 0.05
"""Bounds the weight of one slot."""


class Noise(NamedTuple):
    """What a batch's slots show and weigh; both are [b, c, s]."""

    filled: Tensor
    """bool, whether a slot shows the text's token instead of a mask"""
    weight: Tensor
    """fp32, 0 for a slot that is filled"""


class Objective(Protocol):
    """What a slot should predict, and how much it counts."""

    @property
    def soft_share(self) -> float:
        """Share of the target's distribution in the labels; the rest is the text's token."""

    @property
    def base_share(self) -> float:
        """Share of the loss of a slot by itself; the rest is of it after the token before it."""

    def noise(self, shape: tuple[int, ...], done: float, random: np.random.Generator) -> Noise:
        """Return a batch's noise when the share `done` of the training is done."""


@dataclass(frozen=True, slots=True)
class Decaying:
    """All slots are masked; slot j weighs gamma^j, as it counts only where all before it hold."""

    gamma: float = 0.8
    soft_share: float = 0.7
    base_share: float = 0.3

    def noise(self, shape: tuple[int, ...], done: float, random: np.random.Generator) -> Noise:
        """Return the same weights for every block."""
        weight = (self.gamma ** torch.arange(shape[2])).expand(shape)
        return Noise(torch.zeros(shape, dtype=torch.bool), weight)


@dataclass(frozen=True, slots=True)
class Deer:
    """DEER's two stages, on blocks: a slot is masked with probability t ~ U(0, 1) and weighs 1/t
    (Eq. 1-2); behind the share `refine_from` of the training, the first R slots of a block alone,
    R ~ U(1, slots), times alpha^(R - i) for the i-th of them (Eq. 3-4).
    """

    alpha: float = 1.01
    refine_from: float = 0.7
    soft_share: float = 0.0
    base_share: float = 0.3

    def noise(self, shape: tuple[int, ...], done: float, random: np.random.Generator) -> Noise:
        """Return noise that is drawn for each block by itself."""
        blocks = (*shape[:2], 1)
        t = torch.from_numpy(random.uniform(_LEAST_T, 1, blocks)).float()
        masked = torch.from_numpy(random.random(shape)) < t
        # A block whose slots all show their tokens would teach nothing.
        masked[..., 0] |= ~masked.any(-1)
        weight = masked / t
        if done >= self.refine_from:
            r = torch.from_numpy(random.integers(1, shape[2] + 1, blocks))
            i = torch.arange(1, shape[2] + 1)
            weight = weight * (i <= r) * self.alpha ** (r - i)
            masked |= i > r
        return Noise(~masked, weight)


def wanted(student: Student, batch: Batch, noise: Noise, soft_share: float) -> Wanted:
    """Return what the slots of a batch should predict, `m` being TOP + 1.

    What the head does not score has no probability; the target's candidates are renormalised
    without it.
    """
    ids = torch.cat((batch.top_ids, batch.labels[..., None]), dim=-1).flatten(0, 2)
    rows = student.row_of[ids]
    scored = (rows < student.num_scored).float()
    soft = batch.top_log_probs.flatten(0, 2).exp() * scored[:, :-1]
    soft = soft / soft.sum(-1, keepdim=True).clamp(min=1e-6)
    shares = torch.cat((soft * soft_share, scored[:, -1:] * (1 - soft_share)), dim=1)
    weight = (noise.weight * batch.inside).flatten()
    weight = weight / weight.sum().clamp(min=1e-6)
    return Wanted(rows.clamp(max=student.num_scored - 1), shares, weight)


def loss_of(
    student: Student, batch: Batch, noise: Noise, hidden: Tensor, objective: Objective
) -> tuple[Tensor, Tensor]:
    """Return the loss to minimise, and the share of first slots whose best token after the real one
    before it is the text's.

    hidden [b x c x s, hidden] are the slots' states with the noise's filling.
    """
    slots = batch.labels.shape[2]
    previous = batch.previous.flatten()
    with torch.no_grad():
        best = student.best(hidden[::slots], previous[::slots])
        right = (best == batch.labels[:, :, 0].flatten()).float().mean()
    labels = wanted(student, batch, noise, objective.soft_share)
    return student.loss(hidden, previous, labels, objective.base_share), right
