"""The outcome that a round most likely has, to draft for while it is being verified. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from foredraft.decoding.prefix import extend_hash
from foredraft.decoding.tree import explicit, first_branch
from foredraft.types import Base, Round


@dataclass(frozen=True, slots=True)
class Prediction:
    """One outcome of a round: the tokens it would commit and the base of the round after it."""

    tokens: tuple[int, ...]
    base: Base


def predict(asked: Round, bonus_guess: int) -> tuple[Prediction, ...]:
    """Return the outcomes worth drafting for while a round is verified, best first.

    bonus_guess is the drafter's token after a fully kept draft, or after a tree's first branch;
    negative if it has none.
    """
    if not asked.draft or bonus_guess < 0:
        return ()
    trunk = first_branch(explicit(asked.parents, len(asked.draft)))
    tokens = (*(asked.draft[node] for node in trunk), bonus_guess)
    base = asked.base
    after = Base(
        base.session_id,
        base.round + 1,
        base.prefix_len + len(tokens),
        extend_hash(base.prefix_hash, tokens),
    )
    return (Prediction(tokens, after),)
