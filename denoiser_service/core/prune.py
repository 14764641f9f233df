"""The nodes of a draft graph that are worth a place in the next call: Spiffy's Eq. 12 to 14."""

from __future__ import annotations

import math
from collections.abc import Sequence

from denoiser_service.core.graph import DraftGraph, Formula, leads_to
from denoiser_service.core.port import Guess
from denoiser_service.core.ranks import Draft, Ranks
from foredraft.decoding.block_state import State, is_full
from foredraft.denoising import Unmasking


def local_score(draft: Draft) -> float:
    """Return the logarithm of Eq. 12: the geometric mean of the drafted tokens' probabilities."""
    return sum(draft.log_p) / len(draft.log_p)


def log_scores(drafts: Sequence[Draft | None], graph: DraftGraph) -> list[float]:
    """Return the logarithm of each node's score (Eq. 14), -inf where it has no draft.

    Children are a node's own that have drafts (Eq. 13). Without any, which the paper leaves open,
    the score is the local one.
    """
    local = [-math.inf if draft is None else local_score(draft) for draft in drafts]
    scores = []
    for own, children in zip(local, graph.children, strict=True):
        theirs = [local[child] for child in children if drafts[child] is not None]
        scores.append((own + sum(theirs) / len(theirs)) / 2 if theirs else own)
    return scores


def prune(graph: DraftGraph, ranks: Ranks, unmasking: Unmasking, budget: int) -> tuple[Guess, ...]:
    """Return at most `budget` (D*) distinct states to evaluate beside the anchor's, the best first.

    Each is as likely as its tokens are by the anchor's distribution.

    Grown from the anchor, always by the best node that one step can lead to from there or from a
    node that is kept: the best D* alone may hold nodes that no walk reaches any more. A full
    block's draft is left out where it is of no use.
    """
    drafts = [ranks.draft(formula) for formula in graph.formulas]
    scores = log_scores(drafts, graph)
    left = sorted(
        (i for i, draft in enumerate(drafts) if draft is not None), key=lambda i: -scores[i]
    )
    reached: list[Formula] = [frozenset()]
    kept: dict[State, Guess] = {}
    while left and len(kept) < budget:
        node = next((i for i in left if _is_reached(graph, i, reached, unmasking)), None)
        if node is None:
            break
        left.remove(node)
        draft = drafts[node]
        if draft is not None and (ranks.full or not is_full(draft.state)):
            reached.append(graph.nodes[node].formula)
            kept.setdefault(draft.state, Guess(draft.state, math.exp(sum(draft.log_p))))
    return tuple(kept.values())


def _is_reached(
    graph: DraftGraph, node: int, reached: Sequence[Formula], unmasking: Unmasking
) -> bool:
    formula = graph.nodes[node].formula
    return any(leads_to(earlier, formula, unmasking) for earlier in reached)
