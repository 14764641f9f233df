"""Best-first draft trees: the prefixes that one diffusion pass makes likeliest (DDTree).

arXiv 2604.12989 builds the tree from each position's own distribution; here a node's probability
also knows its parent, through the model's edges, what followed its branch's last tokens where they
stood in the text before, and, above temperature 0, the noise that the target will draw with. Pure.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Protocol

import numpy as np

from drafter_service.proposals.lattice import Floats, Ints
from foredraft.ngram.index import DEPTH, PSEUDOCOUNTS, WINDOW, NgramIndex, mix
from foredraft.noise.gumbel import gumbel


@dataclass(frozen=True, slots=True)
class TreeParams:
    """How a tree is grown.

    depth is the longest branch that the model's slots make, in tokens, max_nodes bounds what may be
    asked for. A node whose branch the target is expected to take with less than min_node_prob is
    not worth its row in the verifier. confidence_exponent turns score differences into odds: 1
    believes the model's probabilities. confidence_exponent_sampled does so above temperature 0,
    where the scores hold the target's own noise: it is how far the drafter's log-probabilities
    can be trusted.

    A text that repeats itself predicts its continuation, down to text_depth: pseudocounts are what
    the estimate so far is worth, in occurrences, against what followed the last 1, 2, ... tokens
    among the text's last text_window; none to leave the text out.
    """

    depth: int = 8
    max_nodes: int = 63
    min_node_prob: float = 0.02
    confidence_exponent: float = 1.2
    confidence_exponent_sampled: float = 1.0
    text_depth: int = DEPTH
    text_window: int = WINDOW
    pseudocounts: tuple[float, ...] = PSEUDOCOUNTS


@dataclass(frozen=True, slots=True)
class Tree:
    """Nodes in the order they were added, likeliest first; parents as in foredraft.decoding.tree.

    mass[i] is the estimated probability that the target's own text runs through node i.
    """

    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    mass: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class TreeScores:
    """What a tree is grown from: tokens [k, M] and how likely each is to follow each before it.

    logits [k, P, M] are what the target adds its noise [k, M] to: divided by T, filtered. P is M
    with edges, else 1: then slots do not depend on each other. confidence_exponent is TreeParams'.
    text is what the first slot follows; seed is that of the noise, None at temperature 0.
    """

    tokens: Ints
    logits: Floats
    noise: Floats
    confidence_exponent: float
    text: Sequence[int] = ()
    seed: int | None = None


class TreeSearch(Protocol):
    """Grows a tree."""

    def __call__(self, scores: TreeScores, num_nodes: int, params: TreeParams, eos: int) -> Tree:
        """Return the num_nodes likeliest prefixes over the slots' candidates and the text, best
        first.

        A prefix's probability is the product of its tokens' (log_odds, mixed), so a parent always
        comes before its child. Nothing follows EOS. Fewer nodes come back where what is left has
        less than min_node_prob.
        """


def log_odds(scores: TreeScores) -> Floats:
    """Return log P(candidate c follows candidate p), [k, P, M], each row normalised over c."""
    perturbed = (scores.logits + scores.noise[:, None, :]) * scores.confidence_exponent
    perturbed -= perturbed.max(-1, keepdims=True)
    perturbed -= np.log(np.exp(perturbed).sum(-1, keepdims=True))
    return perturbed


def mixed(
    scores: TreeScores,
    slot: int,
    row: Floats | None,
    followed: Sequence[dict[int, int]],
    pseudocounts: Sequence[float],
) -> tuple[list[int], list[float]]:
    """Return the tokens that may come at a depth and their log odds, the text's beside the model's.

    row [M] are the logits of the slot's candidates, None where the model has nothing to say: below
    its slots, and, if its edges decide, behind a token that only the text knew. followed and
    pseudocounts are ngram.index.mix's; without a model, tokens that nobody can name keep their
    share.
    """
    tokens: list[int] = []
    shares: list[float] = []
    noise: list[float] = []
    if row is not None:
        tokens, noise = scores.tokens[slot].tolist(), scores.noise[slot].tolist()
        p = np.exp(row.astype(np.float64) - row.max())
        shares = (p / p.sum()).tolist()
    left = mix(tokens, shares, followed, pseudocounts)
    noise += [_noise(scores, slot, token) for token in tokens[len(noise) :]]
    nameless = left if row is None else 0.0
    weights = [
        (math.log(share) + g) * scores.confidence_exponent if share > 0 else -math.inf
        for share, g in zip(shares, noise, strict=True)
    ]
    if nameless > 0:
        weights.append(math.log(nameless) * scores.confidence_exponent)
    most = max(weights)
    whole = most + math.log(sum(math.exp(weight - most) for weight in weights))
    return tokens, [weight - whole for weight in weights[: len(tokens)]]


def _noise(scores: TreeScores, depth: int, token: int) -> float:
    if scores.seed is None:
        return 0.0
    position = np.array([len(scores.text) + depth])
    return float(gumbel(scores.seed, position, np.array([[token]]))[0, 0])


def least_log_mass(params: TreeParams) -> float:
    """Return the least log mass of a node; what may not be chosen has less in any case."""
    return math.log(params.min_node_prob) if params.min_node_prob > 0 else -sys.float_info.max


@dataclass(frozen=True, slots=True)
class _Siblings:
    """What may come behind a node, or first: best first, each with its place among the slot's
    candidates, None for a token that only the text knew.
    """

    parent: int
    path: tuple[int, ...]
    before: float
    tokens: list[int]
    columns: list[int | None]
    odds: list[float]


def grow(scores: TreeScores, num_nodes: int, params: TreeParams, eos: int) -> Tree:
    """Return the tree that TreeSearch asks for."""
    slots = min(params.depth, len(scores.tokens))
    odds_of, width = log_odds(scores), scores.tokens.shape[1]
    ngrams = NgramIndex(scores.text, len(params.pseudocounts), params.text_window)
    least = least_log_mass(params)
    tokens: list[int] = []
    parents: list[int] = []
    mass: list[float] = []
    heap: list[tuple[float, int, int, _Siblings]] = []  # -log mass, tie-break, place among siblings
    pushed = 0

    def push(place: int, of: _Siblings) -> None:
        nonlocal pushed
        if place < len(of.tokens):
            heappush(heap, (-(of.before + of.odds[place]), pushed, place, of))
            pushed += 1

    def siblings(
        parent: int, path: tuple[int, ...], before: float, column: int | None
    ) -> _Siblings:
        slot, edges = len(path), odds_of.shape[1] > 1
        known = slot < slots and (column is not None or not edges)
        at = column if edges and column is not None else 0
        followed = ngrams.followers(path) if slot < params.text_depth else []
        if followed:
            row = scores.logits[slot, at] if known else None
            ids, odds = mixed(scores, slot, row, followed, params.pseudocounts)
        elif known:
            ids, odds = scores.tokens[slot].tolist(), odds_of[slot, at].tolist()
        else:
            ids, odds = [], []
        order = sorted(range(len(ids)), key=lambda i: -odds[i])
        columns = [i if known and i < width else None for i in order]
        best, chances = [ids[i] for i in order], [odds[i] for i in order]
        return _Siblings(parent, path, before, best, columns, chances)

    push(0, siblings(-1, (), 0.0, 0))
    while heap and len(tokens) < num_nodes:
        negative, _, place, of = heappop(heap)
        if -negative < least:
            break
        node = len(tokens)
        tokens.append(of.tokens[place])
        parents.append(of.parent)
        mass.append(math.exp(-negative))
        push(place + 1, of)
        if tokens[-1] != eos:
            path = (*of.path, tokens[-1])
            push(0, siblings(node, path, -negative, of.columns[place]))
    return Tree(tuple(tokens), tuple(parents), tuple(mass))
