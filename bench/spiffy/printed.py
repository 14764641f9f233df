"""Spiffy's draft graphs as printed: ranks by probability alone, and pruning by Eq. 12 to 14. Pure.

Its graph has the served one's nodes, so that a comparison is of ranks and scores.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from denoiser_service.core.graph import DraftGraph, Formula, RankedBy
from denoiser_service.core.next import Rule
from denoiser_service.core.port import Guess
from denoiser_service.core.ranks import Anchor, Draft, Drafts, Ranks
from foredraft.decoding.block_state import State, is_full


def log_scores(drafts: Sequence[Draft | None], graph: DraftGraph) -> list[float]:
    """Return the logarithm of each node's score (Eq. 14), -inf where it has no draft: of its local
    score (Eq. 12), the geometric mean of its tokens' probabilities, and its children's (Eq. 13).

    Children are the nodes whose formulas hold its own and more and that have drafts. Without any,
    which the paper leaves open, the score is the local one.
    """
    local = [-math.inf if each is None else each.log_p / len(each.tokens) for each in drafts]
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
        graph, unmasking = self.graph, self.rule.unmasking
        made = Drafts(Ranks(anchor, self.rule, RankedBy.GREEDY, graph.deepest), graph)
        drafts = [made.of(path[-1]) for path in graph.paths]
        scores = log_scores(drafts, graph)
        left = sorted(
            (node for node, draft in enumerate(drafts) if draft is not None),
            key=lambda node: -scores[node],
        )
        reached: list[Formula] = [frozenset()]
        kept: dict[State, Guess] = {}
        while len(kept) < self.budget:
            best = next((n for n in left if graph.is_reached(n, reached, unmasking)), None)
            if best is None:
                break
            left.remove(best)
            draft = drafts[best]
            if draft is not None and (anchor.full or not is_full(draft.state)):
                reached.append(graph.nodes[best].formula)
                kept.setdefault(draft.state, Guess(draft.state, math.exp(draft.log_p)))
        return tuple(kept.values())
