"""The values a session answers with. Records only."""

from __future__ import annotations

from dataclasses import dataclass

from deployments.orchestrator.adl import Observation
from foredraft.types import Committed, DraftBlock, Propose, Round


@dataclass(frozen=True, slots=True)
class Draft:
    """The part of a block that is still ahead of the committed tokens, and what it came from.

    trimmed counts the block's leading tokens that were committed meanwhile, all equal.
    """

    request: Propose
    block: DraftBlock
    trimmed: int

    @property
    def tokens(self) -> tuple[int, ...]:
        """The tokens to verify."""
        return self.block.tokens[self.trimmed :]


@dataclass(frozen=True, slots=True)
class Step:
    """What one verdict committed, for the controller and for the statistics.

    kept counts the committed draft tokens. observation is None for a plain round. ran_ahead says
    that a block was asked for meanwhile, hit that the outcome was the one it was asked for.
    """

    asked: Round
    tokens: tuple[Committed, ...]
    kept: int
    observation: Observation | None
    ran_ahead: bool
    hit: bool
