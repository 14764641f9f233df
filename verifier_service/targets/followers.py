"""Which tokens follow which in a text that is filled in any order: its bigrams. Pure.

"Reviving Any-Subset Autoregressive Models", Alg. 2, counts them for a draft's law; here only their
order matters, the latest first, because a draft's tokens are verified whatever they are.
"""

from __future__ import annotations

from collections.abc import Sequence

from foredraft.layout import Layout

# Of each token, the latest ones alone.
MOST_FOLLOWERS = 8


class Followers:
    """The bigrams of a text in order space, as it grows."""

    def __init__(self, layout: Layout) -> None:
        self._positions = layout.positions
        # None at the positions to come; one more, so that nothing follows the last one.
        self._tokens: list[int | None] = [None] * (layout.length + 1)
        self._known = 0
        self._after: dict[int, list[int]] = {}

    def extend(self, tokens: Sequence[int]) -> None:
        """Add the next tokens of the text."""
        for token in tokens:
            at = self._positions[self._known]
            self._known += 1
            self._tokens[at] = token
            if at and (before := self._tokens[at - 1]) is not None:
                self._note(before, token)
            if (after := self._tokens[at + 1]) is not None:
                self._note(token, after)

    def before(self, step: int, guessed: int | None) -> int | None:
        """Return the token at the position before that of the step-th token to come, from 0 on.

        guessed is the one to come before it, which stands there unless a given one does.
        """
        order = self._known + step
        at = self._positions[order] - 1
        if at < 0:
            return None
        return guessed if step and self._positions[order - 1] == at else self._tokens[at]

    def after(self, token: int | None) -> Sequence[int]:
        """Return which tokens came after a token, the latest first."""
        return () if token is None else self._after.get(token, ())

    def _note(self, token: int, follower: int) -> None:
        found = self._after.setdefault(token, [])
        if follower in found:
            found.remove(follower)
        found.insert(0, follower)
        del found[MOST_FOLLOWERS:]
