"""The target's choice: t_n = argmax_v [log p_n(v) + g(seed, n, v)], exact and row by row.

p_n is the softmax of the processed logits z (see `process`). As log p(v) = z(v) - log Z with the
same Z for every v, the argmax needs no normalisation. g is Gumbel noise from a counter-based hash
(noise.gumbel), so the choice is a draw from p_n (Gumbel-max) that depends on nothing but the
row's logits, its sampling and its position. Every operation works on one row or one element, so
rows cannot influence each other's bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from foredraft.noise.gumbel import gumbel_of_hash, hash_torch
from foredraft.noise.streams import stream_key

if TYPE_CHECKING:
    import numpy.typing as npt

    from foredraft.types import SamplingParams

    Floats = npt.NDArray[np.float64]

# Tokens this close to a row's best logit get their noise at once: e^-4 of the best probability.
HEAD_NATS = 4.0
# How far below the maximum a row's top-p set is looked for, step by step.
_TOP_P_NATS = (3.0, 8.0, math.inf)
_HASH_VALUES = 1 << 52


class RowSampling(NamedTuple):
    """How one row is drawn: position is the index that the chosen token will have in the text."""

    sampling: SamplingParams
    position: int


# Returns argmax_v [z(v) + g(seed, position, v)] of each row of z [rows, vocabulary], maxima 0.
GumbelArgmax = Callable[["Floats", Sequence[RowSampling]], list[int]]
# Does what `choose` does.
Choice = Callable[["npt.NDArray[np.float32]", Sequence[RowSampling]], list[int | None]]


def choose(
    logits: npt.NDArray[np.float32],
    draws: Sequence[RowSampling],
    argmax: GumbelArgmax | None = None,
) -> list[int | None]:
    """Return the target's token for each row of logits [rows, vocabulary].

    None where the row cannot be used: a NaN, +inf, or nothing but -inf. Among equal scores the
    lowest token id wins.
    """
    if not draws:
        return []
    best = logits.argmax(axis=-1)
    # NumPy's argmax stops at a NaN, so the value found there shows all three bad cases.
    usable = np.isfinite(logits[np.arange(len(draws)), best])
    chosen: list[int | None] = [
        int(token) if ok else None for token, ok in zip(best, usable, strict=True)
    ]
    drawn = [i for i, draw in enumerate(draws) if usable[i] and draw.sampling.temperature > 0]
    if drawn:
        subset = [draws[i] for i in drawn]
        tokens = (argmax or gumbel_argmax)(process(logits[drawn], subset), subset)
        for i, token in zip(drawn, tokens, strict=True):
            chosen[i] = token
    return chosen


def process(logits: npt.NDArray[np.float32], draws: Sequence[RowSampling]) -> Floats:
    """Return logits / temperature with excluded tokens at -inf: float64 [rows, vocabulary].

    In vLLM's order: temperature, min-p, top-k (ties at the k-th value stay), then top-p over what
    is left, renormalised (the token that crosses the mass stays; equal logits by token id).
    """
    temperature = np.array([[draw.sampling.temperature] for draw in draws])
    # Shifting by the maximum first keeps tiny temperatures from overflowing; order and differences
    # of the scores stay as they are.
    z: Floats = (logits - logits.max(axis=-1, keepdims=True).astype(np.float64)) / temperature
    for row, (sampling, _) in zip(z, draws, strict=True):
        if sampling.min_p > 0:
            row[row < math.log(sampling.min_p)] = -np.inf
        if 0 < sampling.top_k < row.size:
            kth = np.partition(row, row.size - sampling.top_k)[row.size - sampling.top_k]
            row[row < kth] = -np.inf
        if sampling.top_p < 1:
            row[~_nucleus(row, sampling.top_p)] = -np.inf
    return z


def probabilities(z: Floats) -> Floats:
    """Return p, the softmax of processed logits [rows, vocabulary] whose rows have maximum 0."""
    mass: Floats = np.exp(z)
    mass /= mass.sum(axis=-1, keepdims=True)
    return mass


def _nucleus(z: Floats, top_p: float) -> npt.NDArray[np.bool_]:
    """Return which tokens of one row [vocabulary], maximum 0, make up the top-p set.

    Sums run one by one in a fixed order (cumsum), so they have the same bits on every machine. The
    sort is confined to the tokens near the maximum where these hold the whole mass that is asked.
    """
    mass = np.exp(z)
    enough = top_p * np.cumsum(mass)[-1]
    for nats in _TOP_P_NATS:
        near = np.flatnonzero((z >= -nats) & (z > -np.inf))
        order = near[np.argsort(-z[near], kind="stable")]
        cumulative = np.cumsum(mass[order])
        if cumulative[-1] >= enough:
            break
    count = int(np.searchsorted(cumulative, enough, side="left")) + 1
    kept = np.zeros(z.size, dtype=np.bool_)
    kept[order[:count]] = True
    return kept


def gumbel_argmax(z: Floats, draws: Sequence[RowSampling]) -> list[int]:
    """Return argmax_v [z(v) + g(seed, position, v)] of each row; rows have their maximum at 0.

    Only tokens that can win get noise, which is exact. Let H be the tokens with z >= -c and
    b = max over H of z + g, a score that is reached. A token outside H has z < -c, so it can reach
    b only if g > b + c. As g grows with the token's hash h, that means h > h*, where h* is the hash
    whose noise is b + c; the slack below covers the rounding of its inversion. So the maximum
    over H and {h >= h*} is the maximum over all tokens.
    """
    rows, vocabulary = z.shape
    keys = torch.tensor([[stream_key(draw.sampling.seed, draw.position)] for draw in draws])
    hashes = hash_torch(keys, torch.arange(vocabulary)).numpy().reshape(-1)
    flat = z.reshape(-1)
    head = flat >= -HEAD_NATS
    scores = np.full(rows * vocabulary, -np.inf)
    _score(scores, flat, hashes, np.flatnonzero(head))
    reached = scores.reshape(rows, vocabulary).max(axis=-1, keepdims=True)
    high = hashes.reshape(rows, vocabulary) >= _least_hash(reached + HEAD_NATS)
    _score(scores, flat, hashes, np.flatnonzero(high.reshape(-1) & ~head))
    return [int(token) for token in scores.reshape(rows, vocabulary).argmax(axis=-1)]


def _score(
    scores: Floats, z: Floats, hashes: npt.NDArray[np.int64], tokens: npt.NDArray[np.intp]
) -> None:
    """Set scores[tokens] to z + g."""
    noise = gumbel_of_hash(torch.from_numpy(hashes[tokens])).numpy()
    scores[tokens] = z[tokens] + noise


def _least_hash(noise: Floats) -> npt.NDArray[np.int64]:
    """Return a hash below which g is surely smaller than noise.

    g inverts to h = 2^52 exp(-exp(-g)); 1e-6 nats and two counts exceed what rounding can do.
    """
    u: Floats = np.exp(-np.exp(-(noise - 1e-6)))
    least: npt.NDArray[np.int64] = np.floor(u * _HASH_VALUES).astype(np.int64) - 2
    return least
