"""Drafts made of the session's own text, where that repeats itself. Pure."""

from __future__ import annotations

from collections.abc import Set

from foredraft.ngram.tree import TextTreeParams, text_block
from foredraft.types import Base, DraftBlock, Propose
from orchestrator.session.committed_prefix import CommittedPrefix


def copied(
    prefix: CommittedPrefix, base: Base, count: int, params: TextTreeParams, stops: Set[int]
) -> tuple[Propose, DraftBlock] | None:
    """Return up to count tokens that followed the prefix's end before, as an answered proposal.

    None where too few of them can be expected to do so again. Nothing follows a stop token.
    """
    block = text_block(prefix.tokens, base, count, params, stops)
    return None if block is None else (Propose(base, base.prefix_len, (), count), block)
