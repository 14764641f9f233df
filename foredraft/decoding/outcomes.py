"""The outcomes that a round most likely has, to draft for while it is being verified. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from foredraft.decoding.prefix import extend_hash
from foredraft.decoding.tree import branch, explicit
from foredraft.types import Base, Guess, ProposeAhead, Round


@dataclass(frozen=True, slots=True)
class Outcome:
    """One outcome of a round: the tokens it would commit and the base of the round after it.

    Without tokens it is the committed prefix itself.
    """

    tokens: tuple[int, ...]
    base: Base


def predict(requested: Round, guesses: Sequence[Guess]) -> tuple[Outcome, ...]:
    """Return the outcomes that the guesses about a round's draft name, in their order."""
    parents = explicit(requested.parents, len(requested.draft))
    kept = (branch(parents, guess.node) for guess in guesses)
    return tuple(
        outcome(requested.base, (*(requested.draft[node] for node in nodes), guess.token))
        for nodes, guess in zip(kept, guesses, strict=True)
    )


def outcome(base: Base, tokens: tuple[int, ...]) -> Outcome:
    """Return the outcome of a round on base that commits tokens."""
    after = Base(
        base.session_id,
        base.round + 1,
        base.prefix_len + len(tokens),
        extend_hash(base.prefix_hash, tokens),
    )
    return Outcome(tokens, after)


def outcomes_of(request: ProposeAhead) -> tuple[Outcome, ...]:
    """Return the outcomes that a request names."""
    return tuple(outcome(request.base, tokens) for tokens in request.outcomes)
