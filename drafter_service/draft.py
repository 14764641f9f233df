"""Sessions of the engine and the drafts that are being made for them, pass by pass."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from drafter_service.feature_store import FeatureStore
from drafter_service.proposals.denoising import Pass, Passes
from drafter_service.proposals.lattice import BlockScores
from drafter_service.proposals.prefix_chain import PrefixChain
from drafter_service.proposals.proposals import NO_GUESS, Drafted
from drafter_service.strategies import Strategy
from foredraft.errors import CorruptModelOutput, ForedraftError
from foredraft.messages import DraftBlock, DraftOpen
from foredraft.types import Base, Guess, Timings


@dataclass(slots=True)
class Session:
    """One session: what it was opened with and the text that it named last."""

    request: DraftOpen
    strategy: Strategy
    features: FeatureStore
    chain: PrefixChain = field(default_factory=PrefixChain)


@dataclass(slots=True, eq=False)
class Draft:
    """One block under way: what it waits for, and how far its text is in the cache.

    branch is the cache slot of its own of a draft that shares its first `shared` tokens with its
    session; None is the session's slot.
    """

    handle: int
    session: Session
    base: Base
    passes: Passes[Drafted]
    branch: int | None = None
    shared: int = 0
    asked: Pass | None = None
    held: int = 0
    rows: int = 0
    answer: DraftBlock | ForedraftError | None = None

    def resume(self, scores: BlockScores | None = None) -> None:
        """Go on to the next pass, from the beginning or from the last pass's scores.

        answer is set once there is none.
        """
        if scores is not None and not np.isfinite(scores.log_q).all():
            self.answer = CorruptModelOutput("the drafter's scores are not finite")
            return
        try:
            self.asked = next(self.passes) if scores is None else self.passes.send(scores)
        except StopIteration as end:
            self.answer = self._block(end.value)

    def _block(self, drafted: Drafted) -> DraftBlock:
        return DraftBlock(
            base=self.base,
            tokens=drafted.tokens,
            parents=drafted.parents,
            proposal=self.session.request.proposal,
            generated_len=drafted.generated_len,
            guesses=self._guesses(drafted),
            timings=Timings(batch_rows=self.rows),
            q=drafted.q,
            expected=drafted.expected,
        )

    def _guesses(self, drafted: Drafted) -> tuple[Guess, ...]:
        if drafted.guesses or drafted.bonus_guess == NO_GUESS:
            return drafted.guesses
        # A path that nobody has estimates of is guessed to be kept whole.
        bonus = Guess(len(drafted.tokens) - 1, drafted.bonus_guess, 1.0)
        return (bonus,)[: self.session.request.num_guesses]
