"""Spiffy's draft graphs as printed: ranks by probability alone, and pruning by Eq. 12 to 14. Pure.

Its graph has the served one's nodes, so that a comparison is of ranks and scores.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from denoiser_service.core.graph import DraftGraph, RankedBy
from denoiser_service.core.next import Rule
from denoiser_service.core.port import Guess
from denoiser_service.core.prune import prune
from denoiser_service.core.ranks import Anchor, Draft, Ranks


def log_scores(graph: DraftGraph, drafts: Sequence[Draft | None]) -> list[float]:
    """Return the logarithm of each node's score (Eq. 14), -inf where it has no draft: of its local
    score (Eq. 12), the geometric mean of its tokens' probabilities, and its children's (Eq. 13).

    Children are the nodes whose formulas hold its own and more and that have drafts. Without any,
    which the paper leaves open, the score is the local one.
    """
    local = [
        -math.inf if draft is None else draft.log_p / len(node.formula)
        for draft, node in zip(drafts, graph.nodes, strict=True)
    ]
    scores = []
    for own, node in zip(local, graph.nodes, strict=True):
        theirs = [
            score
            for score, other in zip(local, graph.nodes, strict=True)
            if node.formula < other.formula and score > -math.inf
        ]
        scores.append((own + sum(theirs) / len(theirs)) / 2 if theirs else own)
    return scores


@dataclass(frozen=True, slots=True)
class PrintedDrafting:
    """Drafts of a graph, at most `budget` (D*) of them in a call."""

    graph: DraftGraph
    rule: Rule
    budget: int

    def __call__(self, anchor: Anchor) -> Sequence[Guess]:
        """Return states to evaluate together with the anchor's, the best first.

        Only such as one step can lead to, from the anchor's or from another that is kept.
        """
        graph = self.graph
        ranks = Ranks(anchor, self.rule, RankedBy.GREEDY, graph.deepest)
        drafts = [ranks.draft(node.formula) for node in graph.nodes]
        scores, unmasking = log_scores(graph, drafts), self.rule.unmasking
        return prune(graph, drafts, scores, unmasking, self.budget, full=anchor.full)
