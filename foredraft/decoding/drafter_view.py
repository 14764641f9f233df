"""The prefix that a drafter's stream named last, so that a request sends only what is new. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from foredraft.types import DraftOpened


@dataclass(frozen=True, slots=True)
class DrafterView:
    """The prefix a stream last named: the first committed_len committed tokens, then tail.

    The tail is a prediction and may have turned out wrong; the committed part cannot.
    """

    opened: DraftOpened
    committed_len: int
    tail: tuple[int, ...] = ()

    def room(self, prefix_len: int) -> int:
        """Return the largest block, in tokens, that can follow a prefix; 0 or less is none."""
        return min(self.opened.max_draft_tokens, self.opened.model.max_len - prefix_len)

    def name(
        self, committed: Sequence[int], tail: tuple[int, ...]
    ) -> tuple[int, tuple[int, ...], DrafterView]:
        """Return keep_len and append that make this prefix committed + tail, and the new view."""
        rest = (*committed[self.committed_len :], *tail)
        common = 0
        for old, new in zip(self.tail, rest, strict=False):
            if old != new:
                break
            common += 1
        view = replace(self, committed_len=len(committed), tail=tail)
        return self.committed_len + common, rest[common:], view
