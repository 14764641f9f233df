"""The prefix that a drafter's stream named last, so that a request sends only what is new. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from foredraft.messages import DraftOpened


@dataclass(frozen=True, slots=True)
class DrafterView:
    """What a stream has: the first committed_len committed tokens."""

    opened: DraftOpened
    committed_len: int

    def room(self, prefix_len: int) -> int:
        """Return the largest block, in tokens, that can follow a prefix; 0 or less is none."""
        return min(self.opened.max_draft_tokens, self.opened.model.max_len - prefix_len)

    def name(self, committed: Sequence[int]) -> tuple[int, tuple[int, ...], DrafterView]:
        """Return keep_len and append that name the committed tokens, and the view after that."""
        view = replace(self, committed_len=len(committed))
        return self.committed_len, tuple(committed[self.committed_len :]), view
