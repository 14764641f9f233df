"""The nodes of a draft graph that are worth a place in the next call.

A node's score is the geometric mean of how often calibration met it and of p of its tokens by the
anchor. Spiffy's (Eq. 12 to 14) weighs p alone, of a node and of its children: above temperature 0,
where the noise names a token whatever its probability, that says little (docs/benchmarks.md has
both).
"""

from __future__ import annotations

import math
from heapq import heapify, heappop, heappush

from denoiser_service.core.graph import DraftGraph, Formula
from denoiser_service.core.port import Guess
from denoiser_service.core.ranks import Drafts, Ranks
from foredraft.decoding.block_state import State, is_full
from foredraft.denoising import Unmasking


def log_score(log_frequency: float, log_p: float) -> float:
    """Return the logarithm of a node's score, the geometric mean of its frequency and of p."""
    return (log_frequency + log_p) / 2


def prune(graph: DraftGraph, ranks: Ranks, unmasking: Unmasking, budget: int) -> tuple[Guess, ...]:
    """Return at most `budget` (D*) distinct states to evaluate beside the anchor's, the best first;
    the chance of each is its score.

    Grown from the anchor, always by the best node that one step can lead to from there or from a
    node that is kept: the best D* alone may hold nodes that no walk reaches any more. A full
    block's draft is left out where it is of no use.
    """
    drafts, frequencies = Drafts(ranks, graph), graph.log_frequencies
    # What a node costs at least, its tokens so far being as likely as they are and the rest
    # certain; so tokens, which take noise, are looked up for nodes alone that might be the best.
    left = [(-log_score(each, 0.0), node, 0) for node, each in enumerate(frequencies)]
    heapify(left)
    apart: list[tuple[float, int, int]] = []
    reached: list[Formula] = [frozenset()]
    kept: dict[State, Guess] = {}
    while left and len(kept) < budget:
        cost, node, known = heappop(left)
        path = graph.paths[node]
        if known < len(path):
            draft = drafts.of(path[known])
            if draft is not None:
                heappush(left, (-log_score(frequencies[node], draft.log_p), node, known + 1))
            continue
        if not graph.is_reached(node, reached, unmasking):
            apart.append((cost, node, known))
            continue
        draft = drafts.of(path[-1])
        if draft is not None and (ranks.full or not is_full(draft.state)):
            reached.append(graph.nodes[node].formula)
            kept.setdefault(draft.state, Guess(draft.state, math.exp(-cost)))
            for each in apart:
                heappush(left, each)
            apart = []
    return tuple(kept.values())
