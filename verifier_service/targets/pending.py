"""A round in flight on a verifier: as it came, as it is offered, and what a pass decides of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from foredraft.messages import Round
from foredraft.types import TokenLogprobs
from verifier_service.targets.self_drafting import SelfDraft


def first_nodes(request: Round, count: int) -> Round:
    """Return a round with its first draft tokens alone: none stands before its parent."""
    return replace(
        request,
        draft=request.draft[:count],
        parents=request.parents[:count],
        q=request.q[:count],
        expected=request.expected[:count],
    )


@dataclass(slots=True)
class Pending:
    """A round: its arrival, the start of its first forward pass, its cost so far.

    asked is the round as it came; offered has the session's own draft where it came without one;
    round has of that draft what was bought for the next pass.
    """

    asked: Round
    offered: Round
    round: Round
    arrived: float
    started: float | None = None
    compute_s: float = 0.0
    passes: int = 0
    emitted: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)

    @classmethod
    def of(cls, asked: Round, now: float, own: SelfDraft, left: int) -> Pending:
        """Return a round that came now, with up to `left` tokens to commit."""
        pending = cls(asked, asked, asked, now)
        if asked.draft:
            own.forget()
        else:
            pending.draft_itself(own, left)
        return pending

    @property
    def drafted(self) -> bool:
        """Whether it came with a draft."""
        return bool(self.asked.draft)

    @property
    def num_drafted(self) -> int:
        """How many draft tokens the next pass verifies."""
        return len(self.round.draft)

    def draft_itself(self, own: SelfDraft, left: int) -> None:
        """Offer the session's own draft to the next pass, which decides one token more."""
        room = min(self.asked.plain_steps - len(self.emitted), left) - 1
        tokens, expected = own.draft(room)
        self.offered = self.round = replace(self.asked, draft=tokens, expected=expected)

    def buy(self, count: int) -> None:
        """Verify so many of the offered draft tokens, the first ones."""
        if count != self.num_drafted:
            self.round = first_nodes(self.offered, count)

    def rows_ahead(self, own: SelfDraft, drafted: int, left: int) -> int:
        """Return how many rows lie ahead of so many tokens of the session's own draft."""
        if self.drafted:
            return 0
        return own.rows_ahead(len(self.offered.draft), drafted, left - drafted - 1)

    def learn(self, own: SelfDraft, drafted: int, kept: int, chosen: Sequence[int]) -> None:
        """Tell what drafts what the rows chose, of which so many were drafted and kept."""
        if not self.drafted:
            own.decided(len(self.offered.draft), drafted, kept, chosen)
