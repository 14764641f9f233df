"""The outcomes that a round most likely has, to draft for while it is being verified. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from foredraft.decoding.prefix import extend_hash
from foredraft.decoding.tree import explicit, first_branch
from foredraft.types import Base, Round

# Outcomes that a next draft is requested for while one round is verified.
MAX_OUTCOMES = 1


@dataclass(frozen=True, slots=True)
class Outcome:
    """One outcome of a round: the tokens it would commit and the base of the round after it.

    Without tokens it is the committed prefix itself.
    """

    tokens: tuple[int, ...]
    base: Base


def predict(requested: Round, bonus_guess: int) -> tuple[Outcome, ...]:
    """Return the outcomes worth drafting for while a round is verified, best first.

    bonus_guess is the drafter's token after a fully accepted draft, or after a tree's first branch;
    negative if it has none.
    """
    if not requested.draft or bonus_guess < 0:
        return ()
    trunk = first_branch(explicit(requested.parents, len(requested.draft)))
    tokens = (*(requested.draft[node] for node in trunk), bonus_guess)
    base = requested.base
    after = Base(
        base.session_id,
        base.round + 1,
        base.prefix_len + len(tokens),
        extend_hash(base.prefix_hash, tokens),
    )
    return (Outcome(tokens, after),)[:MAX_OUTCOMES]
