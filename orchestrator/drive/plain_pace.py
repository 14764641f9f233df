"""How many passes a plain round has."""

from __future__ import annotations

# The weight of the last round in what a pass commits.
_SHARE = 0.3


class PlainPace:
    """Makes plain rounds shorter where a pass commits several tokens: it has more rows then, and
    takes longer. So chunks come as often as without drafts, and with more tokens.
    """

    def __init__(self, steps: int) -> None:
        self._steps = steps
        # Of a pass.
        self._tokens = 1.0

    @property
    def passes(self) -> int:
        """As many as there are steps where each commits one token, at least half of that."""
        return max(1, round(self._steps * (1 + self._tokens) / (2 * self._tokens)))

    def observe(self, tokens: int, passes: int) -> None:
        """Take note of a plain round of so many passes."""
        self._tokens += _SHARE * (max(1.0, tokens / passes) - self._tokens)
