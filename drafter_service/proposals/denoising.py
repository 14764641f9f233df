"""A drafting method's passes: how it asks for them, and how a block is denoised in them. Pure.

A method is a generator that yields its passes one by one. So one loop (engine.py) can run many
sessions' methods side by side, each in as many passes as it needs, and let their next passes share
one forward.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from drafter_service.proposals.lattice import BlockScores
from drafter_service.proposals.proposals import log_odds, walk
from foredraft.types import SamplingParams

MASK = -1
"""In Pass.filled: a slot that holds no token yet."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Pass:
    """Asks for the candidates of num_slots slots, at least one, after text.

    text is the session's context and then what the method drafted so far; each pass's text begins
    with the one before. filled[j] is the token that slot j already holds, or MASK; empty means that
    all slots are masks. sampling is what the candidates are to be drawn with: above temperature 0
    its noise decides which they are.
    """

    text: Sequence[int]
    num_slots: int
    filled: tuple[int, ...] = ()
    sampling: SamplingParams = SamplingParams()


Passes = Generator[Pass, BlockScores, T]
"""Yields the passes it needs, is sent each one's scores, and returns what they come to."""


@dataclass(frozen=True, slots=True)
class Denoiser:
    """Scores a block in S passes (DiffuSpec Eq. 4, SpecDiff's T), most confident slots first.

    Pass s = 1..S-1 fixes U_s, the ceil(|Omega| / (S - s + 1)) most confident of the undecided slots
    Omega, to their tokens on the greedy walk, and the next pass sees those as text; what is still
    undecided is left to the last pass. A fixed slot's scores are all for its token. No more passes
    are made than there are slots. Eq. 4 takes each slot's likeliest token by itself, which is the
    walk's where a family has no edge head. sampling gives candidates and confidence (log_odds).
    """

    steps: int
    sampling: SamplingParams

    def denoise(self, text: Sequence[int], num_slots: int) -> Passes[BlockScores]:
        """Return the last pass's scores of num_slots slots after text."""
        filled = np.full(num_slots, MASK)
        scores = yield Pass(text, num_slots, (), self.sampling)
        for left in range(min(self.steps, num_slots) - 1, 0, -1):
            path, columns = walk(scores, self.sampling, len(text))
            confidence = log_odds(scores, np.array(columns), self.sampling, len(text))
            undecided = np.flatnonzero(filled == MASK)
            order = np.argsort(-confidence[undecided], kind="stable")
            fixed = undecided[order[: -(-len(undecided) // (left + 1))]]
            filled[fixed] = np.array(path)[fixed]
            scores = yield Pass(text, num_slots, tuple(filled.tolist()), self.sampling)
        return scores


def least_confidence(
    scores: BlockScores, tokens: Sequence[int], sampling: SamplingParams, position: int
) -> float:
    """Return the least probability (log_odds) of tokens, one for each of the first slots."""
    found = scores.tokens[: len(tokens)] == np.array(tokens)[:, None]
    return float(np.exp(log_odds(scores, found.argmax(1), sampling, position).min()))
