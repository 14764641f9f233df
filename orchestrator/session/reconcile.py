"""What is left of a draft block after the tokens committed since: the only staleness rule. Pure."""

from __future__ import annotations

from foredraft.decoding.tree import below, explicit, first_branch, follow, is_path, is_tree
from foredraft.types import DraftBlock, Propose
from orchestrator.session.committed_prefix import CommittedPrefix
from orchestrator.session.step import Draft


def is_readable(block: DraftBlock, vocab_size: int) -> bool:
    """Return whether a block is a path or a tree of tokens that the target knows."""
    return all(0 <= token < vocab_size for token in block.tokens) and (
        not block.parents or is_tree(block.parents, len(block.tokens))
    )


def reconcile(prefix: CommittedPrefix, request: Propose, block: DraftBlock) -> Draft | None:
    """Return what is left of a readable block after the committed tokens, None if it is dead.

    The block's prefix must be one that the committed prefix grew from, by length and hash; the
    tokens committed since must be a branch of it, and are trimmed. With nothing left below them it
    is dead, too.
    """
    if not prefix.starts_with(block.base):
        return None
    since = prefix.tokens[block.base.prefix_len :]
    if not since:
        whole = (block.tokens, block.parents, block.bonus_guess, block.q)
        return Draft(request, block, 0, *whole) if block.tokens else None
    parents = explicit(block.parents, len(block.tokens))
    node = follow(block.tokens, parents, since)
    if node is None:
        return None
    tokens, left = below(block.tokens, parents, node)
    guess = block.bonus_guess if node in first_branch(parents) else -1
    if not tokens:
        return None
    if is_path(left):
        q = block.q[-len(tokens) :]
        return Draft(request, block, len(since), tokens, (), guess, q)
    return Draft(request, block, len(since), tokens, left, guess, ())
