"""The outcomes that a round most likely has, to draft for while it is being verified. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice, starmap, takewhile

from foredraft.decoding.prefix import extend_hash
from foredraft.decoding.tree import ROOT, branch, explicit
from foredraft.messages import ProposeAhead, Round
from foredraft.types import Base, Guess

# Of the least expected token of a draft that was bought as a whole.
_BELOW = 0.9


@dataclass(frozen=True, slots=True)
class Outcome:
    """One outcome of a round: the tokens it would commit and the base of the round after it.

    Without tokens it is the committed prefix itself.
    """

    tokens: tuple[int, ...]
    base: Base


@dataclass(frozen=True, slots=True)
class Purchases:
    """How much of its drafts a session sees verified.

    A pass buys draft tokens in the order of their expected acceptance, down to one that changes
    little from pass to pass: here what was left out last was expected to be accepted so often.
    """

    left_out: float = 0.0

    def bought(self, requested: Round) -> int:
        """Return how many tokens of a round's draft will be verified, its first ones."""
        if not requested.expected:
            return len(requested.draft)
        likely = takewhile(lambda each: each > self.left_out, requested.expected)
        return sum(1 for _ in likely)

    def after(self, requested: Round, bought: int) -> Purchases:
        """Return what is known after a round of whose draft so many tokens were verified."""
        if not requested.expected:
            return self
        if bought < len(requested.draft):
            return Purchases(requested.expected[bought])
        least = requested.expected[-1]
        return self if self.left_out < least else Purchases(_BELOW * least)


def predict(requested: Round, guesses: Sequence[Guess], bought: int) -> tuple[Outcome, ...]:
    """Return a round's likeliest outcomes, where so many tokens of its draft are verified.

    Those are what its block's guesses name, in their order. Where some of the draft is not
    verified, its tokens are guesses themselves: as many of all of them as the block had.
    """
    parents = explicit(requested.parents, len(requested.draft))
    named = _likeliest(requested, guesses, bought)
    kept = (branch(parents, guess.node) for guess in named)
    return tuple(
        outcome(requested.base, (*(requested.draft[node] for node in nodes), guess.token))
        for nodes, guess in zip(kept, named, strict=True)
    )


def predicts(
    requested: Round, guesses: Sequence[Guess], bought: int, kept: Sequence[int], token: int
) -> bool:
    """Return whether `predict` names the outcome that is a token after the kept nodes."""
    end = kept[-1] if kept else ROOT
    named = _likeliest(requested, guesses, bought)
    return any(guess.node == end and guess.token == token for guess in named)


def _likeliest(requested: Round, guesses: Sequence[Guess], bought: int) -> Sequence[Guess]:
    if bought == len(requested.draft) or not requested.expected:
        return guesses
    parents = explicit(requested.parents, len(requested.draft))
    unverified = zip(parents, requested.draft, requested.expected, strict=True)
    candidates = [*guesses, *starmap(Guess, islice(unverified, bought, None))]
    verified = [each for each in candidates if each.node < bought]
    return sorted(verified, key=lambda each: -each.probability)[: len(guesses)]


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
