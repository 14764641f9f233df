"""Drafts made of the session's own text, where that repeats itself. Pure."""

from __future__ import annotations

from collections.abc import Set

from deployments.orchestrator.committed import CommittedPrefix
from foredraft.text_tree import TextTreeParams, text_tree
from foredraft.tree import first_branch, is_path
from foredraft.types import Base, DraftBlock, Proposal, Propose


def copied(
    prefix: CommittedPrefix, base: Base, count: int, params: TextTreeParams, stops: Set[int]
) -> tuple[Propose, DraftBlock] | None:
    """Return up to count tokens that followed the prefix's end before, as an answered proposal.

    None where too few of them can be expected to do so again. Nothing follows a stop token.
    """
    if count <= 0:
        return None
    tree = text_tree(prefix.tokens, count, params, stops)
    if not tree.tokens:
        return None
    trunk = first_branch(tree.parents)
    stopped = tree.tokens[trunk[-1]] in stops
    block = DraftBlock(
        base,
        tree.tokens,
        () if is_path(tree.parents) else tree.parents,
        Proposal.HYBRID,
        generated_len=len(trunk) - stopped,
    )
    return Propose(base, base.prefix_len, (), count), block
