"""Rejection sampling: a drafted token stays with the odds of p against what it was drawn from.

p [k + 1, vocabulary] holds the target's processed distribution after the prefix and after each of k
drafted tokens; q holds what each drafted token was drawn from, its shares exact. Random numbers
come from outside, as do a draft and its q: everything here is a function of its arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from foredraft.types import Candidates

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Counts = npt.NDArray[np.int64]


class Odds(NamedTuple):
    """What a rule makes of a draft of k tokens.

    keep [k]: token i passes if a uniform number is at most keep[i]. reach [k + 1]: what p is
    multiplied with in what is left over of it after i kept tokens.
    """

    keep: Floats
    reach: Floats


def one_hot(draft: Sequence[int]) -> tuple[Candidates, ...]:
    """Return the q of a deterministic draft: each token could be no other."""
    return tuple(Candidates((token,), (1,)) for token in draft)


def rejection_odds(p: Floats, draft: Sequence[int], q: Sequence[Candidates]) -> Odds:
    """Return min(1, p(x_i) / q(x_i)) for each drafted token x_i.

    DEER Eq. 5, SpecDiff Alg. 1, DiffuSpec Eq. 1. With `leading` and `next_weights` the text has the
    target's law if each x_i was drawn from q_i, given the x before it, or if q_i is one-hot. It has
    not if a search picked x_i and q_i is a marginal (DiffuSpec App. H.3).
    """
    ratios = [row[x] / share(c, x) for row, x, c in zip(p, draft, q, strict=False)]
    return Odds(np.minimum(1.0, np.array(ratios)), np.ones(len(p)))


def leading(passed: Flags) -> Counts:
    """Return how many tokens stand before the first that did not pass: [..., k] to [...]."""
    kept: Counts = np.cumprod(passed, axis=-1, dtype=np.int64).sum(axis=-1)
    return kept


def leftover(p: Floats, q: Candidates, reach: float = 1.0) -> Floats:
    """Return max(0, reach * p - q) for each token of one row: [vocabulary], not normalised."""
    left: Floats = reach * p
    ids = list(q.tokens)
    left[ids] = np.maximum(0.0, left[ids] - np.array(q.weights) / sum(q.weights))
    return left


def next_weights(p: Floats, q: Sequence[Candidates], odds: Odds, kept: int) -> Floats:
    """Return the law of the token after the kept ones, up to a factor: [vocabulary].

    What is left over of p where a token was refused (DEER Eq. 6), else p. Nothing is left over
    where p and q are equal up to rounding, so that a refusal is rounding too: then it is p.
    """
    row: Floats = p[kept]
    if kept == len(q):
        return row
    left = leftover(row, q[kept], float(odds.reach[kept]))
    return left if left.any() else row


def share(q: Candidates, token: int) -> float:
    """Return q(token)."""
    return q.weights[q.tokens.index(token)] / sum(q.weights)
