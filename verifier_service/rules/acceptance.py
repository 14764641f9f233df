"""Keep while equal: a drafted token stays while it is the token that the target itself chose.

The target's choice at a position is a function of the prefix, the sampling and the shared noise
alone (docs/architecture.md), so the result is the target's own sample path for every proposal, and
the draft decides only how much of it one forward finds.
"""

from __future__ import annotations

from collections.abc import Sequence

from foredraft.decoding.tree import ROOT, explicit


def keep_while_equal(
    draft: Sequence[int], chosen: Sequence[int], parents: Sequence[int] = ()
) -> tuple[tuple[int, ...], int]:
    """Return (indices of the draft tokens kept, from the root on; the target's next token).

    parents are those of a tree, none of a path. chosen[0] is the target's choice after the prefix,
    chosen[1 + i] the one after the branch that ends in draft[i]. From a node, the first child with
    the chosen token is gone to.
    """
    if len(chosen) != len(draft) + 1:
        raise ValueError("chosen must have one entry more than draft")
    kept: list[int] = []
    at = ROOT
    # Children come after their parent, so one pass meets them all.
    for node, parent in enumerate(explicit(parents, len(draft))):
        if parent == at and draft[node] == chosen[1 + at]:
            kept.append(node)
            at = node
    return tuple(kept), chosen[1 + at]
