"""What an any-subset target drafts for itself: its own rows, of passes that it made anyway. Pure.

A pass over a draft has a query row after the text and after each drafted token, and rows ahead: at
the positions that follow the whole draft, which see all of it. Every row is drawn with the noise of
its order index. So a pass also shows what comes after the tokens that it decides: rows behind the
first refused token saw that token and not the right one (Jacobi decoding), rows ahead saw no token
of their neighbours' (the star of "Reviving Any-Subset Autoregressive Models", Fig. 1a). That is the
next pass's draft: no pass is made for a draft alone, and each decides at least one token, so there
are never more passes than tokens (Theorem 1), for every draft length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import mul
from typing import NamedTuple, Protocol

# How fast a session's estimates follow, and an engine's, what they are at first, high so that
# drafts are tried, and the largest distance ahead that has an estimate of its own.
_RATE, _SHARED_RATE = 0.1, 0.02
_START = 0.9
_FAR = 8
# For how many passes nothing is drafted once a draft was too dear: twice as many each time, at most
# so many.
_PAUSE, _LONGEST = 16, 256


class Guess(NamedTuple):
    """A token to come, from a row so many positions ahead of what it saw; 0: one that saw a refused
    token.
    """

    token: int
    ahead: int


@dataclass(slots=True)
class Learnt:
    """What an engine's sessions found out about their drafts, which the next ones begin with."""

    odds: list[float] = field(default_factory=lambda: [_START] * (1 + _FAR))
    """of a guess to be right where those before it are, by how far ahead its row was"""
    pause: int = _PAUSE
    """passes without rows ahead once a draft is too dear"""


class SelfDraft(Protocol):
    """A session's draft of its own, for its next pass."""

    @property
    def most_tokens(self) -> int:
        """How many tokens a draft may have, and as many rows may be ahead of it."""

    def draft(self, room: int) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """Return at most `room` tokens, and how likely each is accepted along with those before."""

    def rows_ahead(self, offered: int, drafted: int, room: int) -> int:
        """Return how many rows, at most `room`, to have ahead of a draft, of which so many tokens
        were offered and so many are verified.
        """

    def decided(self, offered: int, drafted: int, kept: int, chosen: Sequence[int]) -> None:
        """Learn from a pass: what each row chose, of 1 + drafted rows and those ahead."""

    def forget(self) -> None:
        """Drop the draft: it does not follow the text."""


class NoSelfDraft:
    """Of a session that drafts nothing itself."""

    most_tokens = 0

    def draft(self, room: int) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """Return nothing."""
        return (), ()

    def rows_ahead(self, offered: int, drafted: int, room: int) -> int:
        """Return 0."""
        return 0

    def decided(self, offered: int, drafted: int, kept: int, chosen: Sequence[int]) -> None:
        """Learn nothing."""

    def forget(self) -> None:
        """Do nothing."""


@dataclass(slots=True)
class RowsAhead:
    """Drafts of at most `most_tokens` tokens.

    Where rows are too dear for any of a draft, none are asked for ahead during some passes.
    """

    most_tokens: int
    learnt: Learnt = field(default_factory=Learnt)
    guesses: list[Guess] = field(default_factory=list)
    moved: int = 1
    """tokens that the last pass decided"""
    odds: list[float] = field(init=False)
    """the session's own, as Learnt has them"""
    pause: int = 0
    """passes until rows are asked for again"""

    def __post_init__(self) -> None:
        self.odds = list(self.learnt.odds)

    def draft(self, room: int) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """Return the first guesses."""
        guesses = self.guesses[: max(0, min(room, self.most_tokens))]
        likely = accumulate((self.odds[guess.ahead] for guess in guesses), mul)
        return tuple(guess.token for guess in guesses), tuple(likely)

    def rows_ahead(self, offered: int, drafted: int, room: int) -> int:
        """Return what the next draft lacks if this pass decides as many tokens as the last one.

        Where drafts are cut, or were too dear lately, it is to have one token more than this one.
        """
        if self.pause or offered > drafted == 0:
            return 0
        cut = offered > drafted or (not drafted and self.learnt.pause > _PAUSE)
        most = min(self.most_tokens, drafted + 1) if cut else self.most_tokens
        return max(0, min(most, most - drafted + self.moved, room))

    def decided(self, offered: int, drafted: int, kept: int, chosen: Sequence[int]) -> None:
        """Follow the odds, and take the rows behind the decided tokens as guesses."""
        for place in range(min(kept + 1, drafted)):
            self._learn(self.guesses[place].ahead, place < kept)
        if not drafted and self.guesses:
            # The token came, though nobody paid for its draft.
            self._learn(self.guesses[0].ahead, self.guesses[0].token == chosen[0])
        self.pause = max(0, self.pause - 1)
        if offered > drafted == 0:
            self.pause, self.learnt.pause = self.learnt.pause, min(2 * self.learnt.pause, _LONGEST)
        elif drafted:
            self.learnt.pause = _PAUSE
        self.moved = 1 + kept
        whole = kept == drafted
        self.guesses = [
            Guess(token, min(place - drafted, _FAR) if whole else 0)
            for place, token in enumerate(chosen)
            if place > kept
        ]

    def forget(self) -> None:
        """Drop the draft."""
        self.guesses = []

    def _learn(self, ahead: int, right: bool) -> None:
        for odds, rate in ((self.odds, _RATE), (self.learnt.odds, _SHARED_RATE)):
            odds[ahead] += rate * (right - odds[ahead])
