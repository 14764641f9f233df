"""Best-first draft trees: the prefixes that one diffusion pass makes likeliest (DDTree).

arXiv 2604.12989 builds the tree from each position's own distribution; here a node's probability
also knows its parent, through the model's edges, and, above temperature 0, the noise that the
target will draw with. Pure.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Protocol

import numpy as np

from drafter_service.core.lattice import Floats, Ints


@dataclass(frozen=True, slots=True)
class TreeParams:
    """How a tree is grown.

    depth is the longest branch, in tokens, max_nodes bounds what may be asked for. A node whose
    branch the target is expected to take with less than least_mass is not worth its row in the
    verifier. sharpness turns score differences into odds: 1 believes the model's probabilities.
    noisy_sharpness does so above temperature 0, where the scores hold the target's own noise: it
    says how far the drafter's log-probabilities can be trusted.
    """

    depth: int = 8
    max_nodes: int = 63
    least_mass: float = 0.02
    sharpness: float = 1.2
    noisy_sharpness: float = 0.7


@dataclass(frozen=True, slots=True)
class Tree:
    """Nodes in the order they were added, likeliest first; parents as in foredraft.tree.

    mass[i] is the estimated probability that the target's own text runs through node i.
    """

    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    mass: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class TreeScores:
    """What a tree is grown from: tokens [k, M] and how likely each is to follow each before it.

    logits [k, P, M] are what the target adds its noise [k, M] to: divided by T, filtered. P is M
    with edges, else 1: then slots do not depend on each other. sharpness is TreeParams'.
    """

    tokens: Ints
    logits: Floats
    noise: Floats
    sharpness: float


class TreeSearch(Protocol):
    """Grows a tree."""

    def __call__(self, scores: TreeScores, num_nodes: int, params: TreeParams, eos: int) -> Tree:
        """Return the num_nodes likeliest prefixes over the slots' candidates, best first.

        A prefix's probability is the product of its tokens' (log_odds), so a parent always comes
        before its child. Nothing follows EOS. Fewer nodes come back where what is left has less
        than least_mass.
        """


def log_odds(scores: TreeScores) -> Floats:
    """Return log P(candidate c follows candidate p), [k, P, M], each row normalised over c."""
    perturbed = (scores.logits + scores.noise[:, None, :]) * scores.sharpness
    perturbed -= perturbed.max(-1, keepdims=True)
    perturbed -= np.log(np.exp(perturbed).sum(-1, keepdims=True))
    return perturbed


def least_log_mass(params: TreeParams) -> float:
    """Return the least log mass of a node; what may not be chosen has less in any case."""
    return math.log(params.least_mass) if params.least_mass > 0 else -sys.float_info.max


def grow(scores: TreeScores, num_nodes: int, params: TreeParams, eos: int) -> Tree:
    """Return the tree that TreeSearch asks for."""
    ids, odds_of = scores.tokens.tolist(), log_odds(scores)
    depth, least = min(params.depth, len(ids)), least_log_mass(params)
    tokens: list[int] = []
    parents: list[int] = []
    mass: list[float] = []
    # (-log mass, tie-break, parent node, its log mass, slot, siblings best first, place among
    # them, log odds)
    heap: list[tuple[float, int, int, float, int, list[int], int, list[float]]] = []
    pushed = 0

    def push(
        parent: int, before: float, slot: int, order: list[int], place: int, odds: list[float]
    ) -> None:
        nonlocal pushed
        total = -(before + odds[order[place]])
        heappush(heap, (total, pushed, parent, before, slot, order, place, odds))
        pushed += 1

    def children(parent: int, before: float, slot: int, previous: int) -> None:
        row = odds_of[slot, previous if odds_of.shape[1] > 1 else 0]
        push(parent, before, slot, np.argsort(-row, kind="stable").tolist(), 0, row.tolist())

    children(-1, 0.0, 0, 0)
    while heap and len(tokens) < num_nodes:
        negative, _, parent, before, slot, order, place, odds = heappop(heap)
        if -negative < least:
            break
        node, candidate = len(tokens), order[place]
        tokens.append(ids[slot][candidate])
        parents.append(parent)
        mass.append(math.exp(-negative))
        if place + 1 < len(order):
            push(parent, before, slot, order, place + 1, odds)
        if slot + 1 < depth and tokens[-1] != eos:
            children(node, -negative, slot + 1, candidate)
    return Tree(tuple(tokens), tuple(parents), tuple(mass))
