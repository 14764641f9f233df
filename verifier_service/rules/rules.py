"""The acceptance rules, as a session uses them: from a round's rows to the tokens that are kept.

A rule sets how each row is drawn, and decides once that is done. Under `coupled` the target's own
draws are all that it needs, so its rows go through one batch with everyone else's. The other rules
read whole distributions, and draw one token at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from foredraft.decoding.tree import depths, explicit
from foredraft.messages import Round
from foredraft.noise.streams import ACCEPT, RESIDUAL, substream, uniform
from foredraft.types import Acceptance, Candidates, SamplingParams
from verifier_service.rules.acceptance import keep_while_equal
from verifier_service.rules.block_verification import block_odds, last
from verifier_service.rules.rejection import (
    Counts,
    Flags,
    Floats,
    Odds,
    leading,
    next_weights,
    one_hot,
    rejection_odds,
)
from verifier_service.rules.sampling import GumbelArgmax, RowSampling, probabilities, process

Logits = npt.NDArray[np.float32]


class Decision(NamedTuple):
    """The draft tokens kept, by index, from the root on; and the token after them."""

    path: tuple[int, ...]
    token: int


class Rule(Protocol):
    """How one session's rounds are decided. The round's first draft token stands at `first`."""

    @property
    def trees(self) -> bool:
        """Whether drafts may be trees."""

    @property
    def divisible(self) -> bool:
        """Whether a draft may be verified in part, chosen by its tokens, and stay exact."""

    def draw(self, position: int) -> RowSampling:
        """Return how plain decoding draws the target's own token at a position."""

    def draws(self, asked: Round, first: int) -> list[RowSampling]:
        """Return how the target's own token is drawn in each of the round's 1 + k rows."""

    def decide(self, asked: Round, first: int, chosen: Sequence[int], logits: Logits) -> Decision:
        """Return what becomes of the draft, given the tokens drawn and the rows' logits."""


class Method(NamedTuple):
    """The differences between the rules for sampled drafts.

    odds(p, draft, q) are those of each token to pass; kept(passed [..., k]) counts the tokens kept.
    """

    odds: Callable[[Floats, Sequence[int], Sequence[Candidates]], Odds]
    kept: Callable[[Flags], Counts]


METHODS = {
    Acceptance.REJECTION: Method(rejection_odds, leading),
    Acceptance.BLOCK: Method(block_odds, last),
    # The formula of rejection. What differs is q: the marginals, which nothing was drawn from.
    Acceptance.L2R: Method(rejection_odds, leading),
}


def rule_of(
    acceptance: Acceptance, sampling: SamplingParams, argmax: GumbelArgmax, drafted: bool = False
) -> Rule:
    """Return the rule of a new session, whose drafts another verifier may have decided about.

    At temperature 0, p is one-hot: every rule keeps a token if and only if it is the target's.
    """
    coupled = acceptance is Acceptance.COUPLED
    if coupled or sampling.temperature == 0:
        return Coupled(sampling, trees=coupled)
    return Independent(METHODS[acceptance], sampling, argmax, drafted)


@dataclass(frozen=True, slots=True)
class Coupled:
    """Keep while equal to what the target draws with the shared noise."""

    sampling: SamplingParams
    trees: bool = True
    divisible: bool = True

    def draw(self, position: int) -> RowSampling:
        """Return a draw with the shared noise."""
        return RowSampling(self.sampling, position)

    def draws(self, asked: Round, first: int) -> list[RowSampling]:
        """Return such a draw for every row."""
        steps = [0, *depths(explicit(asked.parents, len(asked.draft)))]
        return [self.draw(first + step) for step in steps]

    def decide(self, asked: Round, first: int, chosen: Sequence[int], logits: Logits) -> Decision:
        """Return the branch that the target chose."""
        return Decision(*keep_while_equal(asked.draft, chosen, asked.parents))


@dataclass(slots=True)
class Independent:
    """Accept paths by p and q, with random numbers that nothing else depends on.

    Those of a round are keyed by its prefix's length, which no other round of the session has.
    Until a draft was verified, plain rounds draw with the shared noise, so plain decoding is the
    same under every rule. From then on they must not: a draft may have been made with the noise of
    later positions, and its refusal then depends on it.
    """

    method: Method
    sampling: SamplingParams
    argmax: GumbelArgmax
    drafted: bool = False
    """whether a draft of the session was verified, here or elsewhere"""
    trees: bool = False
    divisible: bool = False

    def draw(self, position: int) -> RowSampling:
        """Return a draw with the shared noise, or, after a draft, with that of the position."""
        if self.drafted:
            return self._fresh_draw(position, position)
        return RowSampling(self.sampling, position)

    def draws(self, asked: Round, first: int) -> list[RowSampling]:
        """Return a plain round's draw; a draft's rows are only checked for being sound."""
        if asked.draft:
            return [RowSampling(SamplingParams(), first)] * (1 + len(asked.draft))
        return [self.draw(first)]

    def decide(self, asked: Round, first: int, chosen: Sequence[int], logits: Logits) -> Decision:
        """Return how much of the draft is kept, and a draw from what is left over of p."""
        if not asked.draft:
            return Decision((), chosen[0])
        self.drafted = True
        q = asked.q or one_hot(asked.draft)
        positions = range(first, first + len(asked.draft))
        p = probabilities(process(logits, [RowSampling(self.sampling, first)] * len(logits)))
        odds = self.method.odds(p, asked.draft, q)
        seed = substream(self.sampling.seed, ACCEPT, first)
        passed = np.array([uniform(seed, position) for position in positions]) <= odds.keep
        kept = int(self.method.kept(passed))
        with np.errstate(divide="ignore"):
            log_weights = np.log(next_weights(p, q, odds, kept))
        scores = (log_weights - log_weights.max())[None]
        token = self.argmax(scores, [self._fresh_draw(first, first + kept)])[0]
        return Decision(tuple(range(kept)), token)

    def _fresh_draw(self, first: int, position: int) -> RowSampling:
        """Return a draw whose noise no draft can have been made with."""
        seed = substream(self.sampling.seed, RESIDUAL, first)
        return RowSampling(replace(self.sampling, seed=seed), position)
