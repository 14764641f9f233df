"""The blocks that a drafter answered, until they are verified or of no more use. Pure."""

from __future__ import annotations

from foredraft.types import DraftBlock, Propose
from orchestrator.run_ahead import SpeculationCache
from orchestrator.session.committed_prefix import CommittedPrefix
from orchestrator.session.compatibility import within
from orchestrator.session.reconcile import reconcile
from orchestrator.session.step import Draft

# Outcomes drafted for ahead of a verdict; one until run-ahead covers several.
RUN_AHEAD_OUTCOMES = 1


class ArrivedBlocks:
    """One block for the committed prefix at most, and those for predicted ones."""

    def __init__(self, prefix: CommittedPrefix) -> None:
        self._prefix = prefix
        self._ready: tuple[Propose, DraftBlock] | None = None
        self._ahead: SpeculationCache[tuple[Propose, DraftBlock]] = SpeculationCache(
            RUN_AHEAD_OUTCOMES
        )
        # The hash of the prefix after which the drafter had nothing to propose.
        self._barren: int | None = None

    @property
    def in_vain(self) -> bool:
        """Whether the drafter had nothing to propose after the committed prefix."""
        return self._barren == self._prefix.hash

    def put(self, request: Propose, block: DraftBlock, vocab_size: int) -> None:
        """Keep a block that answers request, if it is of use now or for a predicted prefix."""
        if block.base.prefix_len > len(self._prefix):
            self._ahead.put(block.base.prefix_hash, (request, block))
        elif self._left_of(request, block, vocab_size) is not None:
            self._ready = (request, block)
        elif not block.tokens:
            self._barren = block.base.prefix_hash

    def put_back(self, request: Propose, block: DraftBlock) -> None:
        """Make a block the one for the committed prefix."""
        self._ready = (request, block)

    def draft(self, vocab_size: int) -> Draft | None:
        """Return what is left of a block after the committed prefix, None if there is none.

        Tokens beyond the target's vocabulary are left out.
        """
        for arrived in (self._ahead.get(self._prefix.hash), self._ready):
            draft = self._left_of(*arrived, vocab_size) if arrived else None
            if draft is not None:
                return draft
        return None

    def clear(self) -> None:
        """Drop all of them: a round has begun."""
        self._ready = None
        self._ahead.clear()

    def _left_of(self, request: Propose, block: DraftBlock, vocab_size: int) -> Draft | None:
        return reconcile(self._prefix, request, within(block, vocab_size))
