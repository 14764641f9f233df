"""The nodes of a draft graph that are worth a place in the next call.

A node's score is the geometric mean of how often calibration met it and of p of its tokens by the
anchor. Spiffy's (Eq. 12 to 14) weighs p alone, of a node and of its children: above temperature 0,
where the noise names a token whatever its probability, that says little (docs/benchmarks.md has
both).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from denoiser_service.core.graph import DraftGraph, Formula
from denoiser_service.core.port import Guess
from denoiser_service.core.ranks import Draft
from foredraft.decoding.block_state import State, is_full
from foredraft.denoising import Unmasking


def log_scores(graph: DraftGraph, drafts: Sequence[Draft | None]) -> list[float]:
    """Return the logarithm of each node's score, -inf where it has no draft."""
    return [
        -math.inf if draft is None else (log_frequency + draft.log_p) / 2
        for log_frequency, draft in zip(graph.log_frequencies, drafts, strict=True)
    ]


def prune(
    graph: DraftGraph,
    drafts: Sequence[Draft | None],
    scores: Sequence[float],
    unmasking: Unmasking,
    budget: int,
    full: bool = False,
    least: float = 0.0,
) -> tuple[Guess, ...]:
    """Return at most `budget` (D*) distinct states to evaluate beside the anchor's, the best first;
    the chance of each, at least `least`, is its score. `drafts` and `scores`, logarithms, are of
    the graph's nodes.

    Grown from the anchor, always by the best node that one step can lead to from there or from a
    node that is kept: the best D* alone may hold nodes that no walk reaches any more. The draft of
    a full block is left out unless it is of use.
    """
    least_log = math.log(least) if least > 0 else -math.inf
    left = sorted(range(len(drafts)), key=lambda node: -scores[node])
    reached: list[Formula] = [frozenset()]
    kept: dict[State, Guess] = {}
    while len(kept) < budget:
        best = next((node for node in left if graph.is_reached(node, reached, unmasking)), None)
        if best is None or scores[best] < least_log:
            break
        left.remove(best)
        draft = drafts[best]
        if draft is not None and (full or not is_full(draft.state)):
            reached.append(graph.nodes[best].formula)
            kept.setdefault(draft.state, Guess(draft.state, math.exp(scores[best])))
    return tuple(kept.values())
