"""Best-first draft trees: the prefixes that one diffusion pass makes likeliest (DDTree).

arXiv 2604.12989 builds the tree from each position's own distribution; here a node's probability
also knows its parent, through the model's edges, and, above temperature 0, the noise that the
target will draw with. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from drafter_service.core.lattice import BlockScores, Floats

Process = Callable[[Floats], Floats]
"""Logits [..., M] -> what the target adds its noise to: divided by T, filtered."""


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


def child_log_odds(
    scores: BlockScores, noise: Floats, process: Process, sharpness: float
) -> Floats:
    """Return log P(candidate c follows candidate p), [k, P, M], each row normalised over c.

    P is M with edges, else 1: then slots do not depend on each other. noise is [k, M].
    """
    logits = scores.log_q[:, None, :]
    if scores.edge is not None:
        logits = logits + scores.edge
    perturbed = (process(logits) + noise[:, None, :]) * sharpness
    perturbed -= perturbed.max(-1, keepdims=True)
    perturbed -= np.log(np.exp(perturbed).sum(-1, keepdims=True))
    return perturbed


def grow(
    scores: BlockScores, log_odds: Floats, num_nodes: int, params: TreeParams, eos: int
) -> Tree:
    """Return the num_nodes likeliest prefixes over the slots' candidates, best first.

    A prefix's probability is the product of its tokens' (child_log_odds), so a parent always comes
    before its child. Nothing follows EOS. Fewer nodes come back where what is left has less than
    least_mass.
    """
    ids = scores.tokens.tolist()
    depth = min(params.depth, len(ids))
    least = np.log(params.least_mass) if params.least_mass > 0 else -np.inf
    tokens: list[int] = []
    parents: list[int] = []
    mass: list[float] = []
    # (-log mass, tie-break, parent node, slot, siblings best first, place among them, log odds)
    heap: list[tuple[float, int, int, int, list[int], int, list[float]]] = []
    pushed = 0

    def push(before: float, parent: int, slot: int, order: list[int], odds: list[float]) -> None:
        nonlocal pushed
        heappush(heap, (-(before + odds[order[0]]), pushed, parent, slot, order, 0, odds))
        pushed += 1

    def children(before: float, parent: int, slot: int, previous: int) -> None:
        row = log_odds[slot, previous if log_odds.shape[1] > 1 else 0]
        push(before, parent, slot, np.argsort(-row, kind="stable").tolist(), row.tolist())

    children(0.0, -1, 0, 0)
    while heap and len(tokens) < num_nodes:
        negative, _, parent, slot, order, place, odds = heappop(heap)
        if -negative < least:
            break
        candidate = order[place]
        node = len(tokens)
        tokens.append(ids[slot][candidate])
        parents.append(parent)
        mass.append(float(np.exp(-negative)))
        if place + 1 < len(order):
            sibling = negative + odds[candidate] - odds[order[place + 1]]
            heappush(heap, (sibling, pushed, parent, slot, order, place + 1, odds))
            pushed += 1
        if slot + 1 < depth and tokens[-1] != eos:
            children(-negative, node, slot + 1, candidate)
    return Tree(tuple(tokens), tuple(parents), tuple(mass))
