"""The values a session answers with."""

from __future__ import annotations

from dataclasses import dataclass

from foredraft.lease import DirectRound
from foredraft.types import Candidates, Committed, DraftBlock, Propose, Round, TokenLogprobs
from orchestrator.length.controllers import Observation


@dataclass(frozen=True, slots=True)
class Draft:
    """The part of a block that is still ahead of the committed tokens, and what it came from.

    tokens, parents and q are what to verify. trimmed counts the block's tokens that were committed
    meanwhile; bonus_guess is the drafter's guess of the token after the first branch, -1 if there
    is none, or the committed tokens left that branch.
    """

    request: Propose
    block: DraftBlock
    trimmed: int
    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    bonus_guess: int
    q: tuple[Candidates, ...]


def whole_draft(told: DirectRound) -> Draft | None:
    """Return the draft of a round that the verifier fetched it for, None if that was plain."""
    block = told.block
    if not block.tokens:
        return None
    request = Propose(block.base, block.base.prefix_len, (), told.num_tokens)
    return Draft(request, block, 0, block.tokens, block.parents, block.bonus_guess, block.q)


@dataclass(frozen=True, slots=True)
class Step:
    """What one verdict committed, for the controller and for the statistics.

    kept counts the committed draft tokens. observation is None for a plain round. ran_ahead says
    that a block was asked for meanwhile, hit that the outcome was the one it was asked for.
    cached_tokens of the prompt were not read for this request; the first one tells.
    """

    asked: Round
    tokens: tuple[Committed, ...]
    kept: int
    observation: Observation | None
    ran_ahead: bool
    hit: bool
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()
    cached_tokens: int = 0
