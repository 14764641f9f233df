"""From masks to scores: the denoising passes over one block. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from drafter_service.core.lattice import BlockScores, Floats
from drafter_service.core.passes import MASK, Pass, Passes
from drafter_service.core.proposals import process_rows, shared_noise
from foredraft.types import SamplingParams


class Denoiser(Protocol):
    """Scores a block of mask slots, in one pass or several."""

    def denoise(self, text: Sequence[int], num_slots: int) -> Passes[BlockScores]:
        """Return the scores of num_slots slots behind text."""


class OnePass:
    """All slots from one pass: S = 1 of DiffuSpec Sec. 4.1."""

    def denoise(self, text: Sequence[int], num_slots: int) -> Passes[BlockScores]:
        """Return the pass's scores."""
        return (yield Pass(text, num_slots))


class Refined:
    """Iterative refinement in S passes (DiffuSpec Eq. 4, SpecDiff's T), most confident slots first.

    Pass s = 1..S-1 fixes U_s, the ceil(|Omega| / (S - s + 1)) most confident of the undecided slots
    Omega, to their likeliest tokens, and the next pass sees those as text; what is still undecided
    is left to the last pass. A fixed slot's scores are all for its token. No more passes are made
    than there are slots.
    """

    def __init__(self, steps: int, sampling: SamplingParams) -> None:
        self._steps, self._sampling = steps, sampling

    def denoise(self, text: Sequence[int], num_slots: int) -> Passes[BlockScores]:
        """Return the last pass's scores."""
        filled = np.full(num_slots, MASK)
        scores = yield Pass(text, num_slots)
        for left in range(min(self._steps, num_slots) - 1, 0, -1):
            odds = log_odds(scores, self._sampling, len(text))
            best = odds.argmax(1)
            undecided = np.flatnonzero(filled == MASK)
            order = np.argsort(-odds[undecided, best[undecided]], kind="stable")
            fixed = undecided[order[: -(-len(undecided) // (left + 1))]]
            filled[fixed] = scores.tokens[fixed, best[fixed]]
            scores = yield Pass(text, num_slots, tuple(filled.tolist()))
        return scores


def log_odds(scores: BlockScores, sampling: SamplingParams, position: int) -> Floats:
    """Return log P(slot j, at position + j, takes its candidate c by itself), [k, M].

    At temperature 0 it is log q. Above it is log q / T with the target's filters and noise,
    normalised over the candidates: what the target's own draw will likeliest be.
    """
    if sampling.temperature == 0:
        return scores.log_q
    odds = process_rows(scores.log_q, sampling) + shared_noise(scores, sampling, position)
    odds -= odds.max(1, keepdims=True)
    return np.asarray(odds - np.log(np.exp(odds).sum(1, keepdims=True)))


def least_confidence(
    scores: BlockScores, tokens: Sequence[int], sampling: SamplingParams, position: int
) -> float:
    """Return the least probability (log_odds) of tokens, one for each of the first slots."""
    slots = np.arange(len(tokens))
    columns = (scores.tokens[slots] == np.array(tokens)[:, None]).argmax(1)
    return float(np.exp(log_odds(scores, sampling, position)[slots, columns].min()))
