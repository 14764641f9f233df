"""A round in flight on a verifier: as it came, as it is offered, and what a pass decides of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from foredraft.messages import Round
from foredraft.types import Price, TokenLogprobs
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
class NextPlain:
    """The plain round after one, of so many passes, which the engine begins by itself if wanted.

    The event loop sets wanted until the verdict has come; the engine's thread sets begun, before.
    """

    passes: int
    wanted: bool
    begun: bool = False


@dataclass(slots=True)
class Pending:
    """A round: its arrival, the start of its first forward pass, its cost so far, and what of the
    wait and of the cost was for prompts in the same passes.

    asked is the round as it came; offered has the session's own draft where it came without one;
    round has of that draft what was bought for the next pass. claimed is false for a round that the
    engine began by itself, until it is asked for.
    """

    asked: Round
    offered: Round
    round: Round
    arrived: float
    started: float | None = None
    compute_s: float = 0.0
    queue_prefill_s: float = 0.0
    compute_prefill_s: float = 0.0
    passes: int = 0
    emitted: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    claimed: bool = True

    @classmethod
    def of(
        cls, asked: Round, now: float, own: SelfDraft, left: int, room: int, price: Price
    ) -> Pending:
        """Return a round that came now, with up to `left` tokens to commit at this price and places
        for so many draft tokens.
        """
        pending = cls(asked, asked, asked, now)
        if asked.draft:
            own.forget()
        else:
            pending.draft_itself(own, left, room, price)
        return pending

    @property
    def drafted(self) -> bool:
        """Whether it came with a draft."""
        return bool(self.asked.draft)

    def took_its_passes(self, pass_s: float) -> bool:
        """Whether a plain round had as many passes as it was to have, or took about their time.

        pass_s is what a pass over one row of each session takes, 0 if that is not known: with own
        drafts, this session's or others', passes take longer, and chunks are to come as often.
        """
        most = self.asked.plain_passes
        # Half of another one like these: as often too late as too early.
        taken_s = self.compute_s * (1 + 0.5 / max(1, self.passes))
        return 0 < most <= self.passes or 0 < most * pass_s <= taken_s

    @property
    def num_drafted(self) -> int:
        """How many draft tokens the next pass verifies."""
        return len(self.round.draft)

    def draft_itself(self, own: SelfDraft, left: int, room: int, price: Price) -> None:
        """Offer the session's own draft to the next pass, which decides one token more."""
        depth = min(self.asked.plain_steps - len(self.emitted), left) - 1
        tree = own.draft(depth, price)
        self.offered = self.round = self.asked
        if tree.tokens:
            self.offered = self.round = replace(
                self.asked, draft=tree.tokens, parents=tree.parents, expected=tree.expected
            )
            if len(tree.tokens) > room:
                self.offered = self.round = first_nodes(self.offered, room)

    def buy(self, count: int) -> None:
        """Verify so many of the offered draft tokens, the first ones."""
        if count != self.num_drafted:
            self.round = first_nodes(self.offered, count)

    def rows_ahead(self, own: SelfDraft, drafted: int, left: int) -> int:
        """Return how many rows are ahead where so many tokens of the own draft are verified."""
        return 0 if self.drafted else own.rows_ahead(drafted, left - 1)
