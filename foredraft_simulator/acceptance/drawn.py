"""What a draft would have of the target's text, drawn by a model or played from a recorded run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class DrawnDraft(NamedTuple):
    """A draft's nodes in the order in which they are offered.

    kept[i] is true where node i is on the target's own path, expected[i] is how likely the drafter
    thinks so, none likelier than before. last[i] is the probability that node i - 1 is the last one
    kept, last[0] that none is. A path's node is kept only if all before it are; a tree's kept nodes
    are each the parent of the next one.
    """

    kept: Sequence[bool]
    expected: Sequence[float]
    last: Sequence[float]
    path: bool


class Acceptance(Protocol):
    """Decides how right drafts are."""

    def draft(self, request: int, offset: int, nodes: int) -> DrawnDraft:
        """Return a draft of so many nodes after `offset` generated tokens of a request."""

    def guessed(self, request: int, offset: int) -> bool:
        """Return whether the drafter's guess of the token there, after its last kept one, is right.

        The token is number `offset` of the request's generated ones.
        """

    @property
    def guess_rate(self) -> float:
        """The share of these guesses that are right, as the drafter reports it."""
