"""The draft of a formula by itself."""

from __future__ import annotations

from denoiser_service.core.graph import DraftGraph, Formula, Node
from denoiser_service.core.ranks import Draft, Drafts, Ranks


def drafted(ranks: Ranks, formula: Formula) -> Draft | None:
    """Return it, None where the anchor has none."""
    graph = DraftGraph((Node(formula, 1, 1),))
    return Drafts(ranks, graph).of(graph.paths[0][-1])
