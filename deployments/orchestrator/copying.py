"""Drafts copied from the session's own text, where that repeats itself. Pure."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from deployments.orchestrator.committed import CommittedPrefix
from foredraft.lookup import continuation
from foredraft.types import Base, DraftBlock, Proposal, Propose


def copied(
    prefix: CommittedPrefix, base: Base, count: int, shortest: int, stops: Set[int]
) -> tuple[Propose, DraftBlock] | None:
    """Return up to count tokens that followed the prefix's end before, as an answered proposal.

    None where its last `shortest` tokens are new. A stop token is the last one copied; else the
    token behind is the guess of what follows.
    """
    found = continuation(prefix.tokens, count + 1, shortest) if count > 0 else ()
    if not found:
        return None
    tokens, rest = found[:count], found[count:]
    block = DraftBlock(base, tokens, (), Proposal.HYBRID, len(tokens), rest[0] if rest else -1)
    stop = next((at for at, token in enumerate(tokens) if token in stops), None)
    if stop is not None:
        block = replace(block, tokens=tokens[: stop + 1], generated_len=stop, bonus_guess=-1)
    return Propose(base, base.prefix_len, (), count), block
