"""What an any-subset target drafts for itself: its own rows, of passes that it made anyway.

A pass has rows ahead: at the positions that follow the next one, which see what is known and none
of each other's tokens (the star of "Reviving Any-Subset Autoregressive Models", Fig. 1a). Each is
drawn with the noise of its order index, so its likeliest tokens are those greatest by
log p / T + g. They, and the text's own bigrams (Alg. 2), are the guesses of the next pass, whose
draft is the tree of those that are right most often. No pass is made for a draft alone, and each
decides at least one token, so there are never more passes than tokens (Theorem 1), for every
length of the draft.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from operator import attrgetter
from typing import Protocol

from foredraft.types import NO_PRICE, Price
from verifier_service.rules.guesses import Guesses, likeliest
from verifier_service.rules.rules import Logits
from verifier_service.rules.sampling import RowSampling
from verifier_service.targets.followers import Followers
from verifier_service.targets.guess_odds import FOLLOWER, MOST_AHEAD, MOST_GUESSES, GuessOdds
from verifier_service.targets.guess_tree import NO_GUESSES, Guess, GuessTree, likeliest_tree

# For how many passes there are no rows ahead once their guesses were too dear: twice as many each
# time, at most so many.
_PAUSE, _LONGEST_PAUSE = 16, 256
# The same for drafts of which nothing was bought, bigrams and all.
_QUIET, _LONGEST_QUIET = 2, 64
# While an engine's sessions rest, new ones do, too, all but one of so many.
_TRY = 8
# A draft has twice as many tokens as one of the last ones had verified, and at least so many.
_LEAST_OFFER, _SLOWER = 4, 0.9
# How fast the time that drafts take is followed.
_SECONDS_SHARE = 0.05


class DraftTree(Protocol):
    """A draft's tokens, with parents as in decoding.tree, and how likely each is accepted along
    with its ancestors: none likelier than the one before it.
    """

    @property
    def tokens(self) -> tuple[int, ...]: ...
    @property
    def parents(self) -> tuple[int, ...]: ...
    @property
    def expected(self) -> tuple[float, ...]: ...


class SelfDraft(Protocol):
    """A session's draft of its own, for its next pass: of so many tokens at most, and with so many
    rows ahead.
    """

    @property
    def most_tokens(self) -> int:
        """The most tokens of a draft."""

    @property
    def most_ahead(self) -> int:
        """The most rows ahead of one."""

    @property
    def beside_s(self) -> float:
        """The seconds that verifying some of its drafts costs beside their rows."""

    def draft(self, depth: int, price: Price = NO_PRICE) -> DraftTree:
        """Return a draft at most so many tokens deep, to be bought at a price."""

    def rows_ahead(self, drafted: int, room: int) -> int:
        """Return how many rows, at most `room`, to have ahead where so many tokens of the draft are
        verified.
        """

    def decided(
        self, drafted: int, tokens: Sequence[int], ahead: Logits, draws: Sequence[RowSampling]
    ) -> None:
        """Learn from a pass that verified so many tokens of the draft: the tokens that it decided,
        and the logits of its rows ahead with how each is drawn.
        """

    def extend(self, tokens: Sequence[int]) -> None:
        """Follow the text."""

    def forget(self) -> None:
        """Drop the guesses: the text goes on by other drafts."""

    def foreseen(self, tokens: Sequence[int], price: Price) -> int:
        """Return how many of the next tokens, the first ones, a draft of its own would have had."""


class NoSelfDraft:
    """Of a session that drafts nothing itself."""

    most_tokens = most_ahead = 0
    beside_s = 0.0

    def draft(self, depth: int, price: Price = NO_PRICE) -> DraftTree:
        """Return nothing."""
        return NO_GUESSES

    def rows_ahead(self, drafted: int, room: int) -> int:
        """Return 0."""
        return 0

    def decided(
        self, drafted: int, tokens: Sequence[int], ahead: Logits, draws: Sequence[RowSampling]
    ) -> None:
        """Learn nothing."""

    def extend(self, tokens: Sequence[int]) -> None:
        """Do nothing."""

    def forget(self) -> None:
        """Do nothing."""

    def foreseen(self, tokens: Sequence[int], price: Price) -> int:
        """Return 0."""
        return 0


@dataclass(slots=True)
class Learnt:
    """What an engine's sessions found out about their guesses, which the next ones begin with."""

    odds: GuessOdds = field(default_factory=GuessOdds)
    pause: int = _PAUSE
    """passes without rows ahead once their guesses are too dear"""
    quiet: int = _QUIET
    """passes without a draft once nothing of one is bought"""
    seconds: float = 0.0
    """of guesses and drafts, for a pass with rows ahead"""
    sessions: int = 0


@dataclass(slots=True)
class OwnTree:
    """Drafts of at most `most_tokens` tokens after a text; paths unless `branches`."""

    most_tokens: int
    followers: Followers
    learnt: Learnt
    branches: bool = True
    most_ahead = MOST_AHEAD
    guess: Guesses = likeliest
    clock: Callable[[], float] = time.perf_counter
    odds: GuessOdds = field(init=False)
    pause: int = 0
    """passes until rows are asked for again"""
    quiet: int = 0
    """passes until anything is drafted again"""
    # Of the tokens to come, one by one, the guesses of a row, best first; and how far the first of
    # these rows was ahead.
    _rows: Sequence[Sequence[int]] = ()
    _ahead: int = 0
    # Of the draft: how many tokens it has, and how many of them stand before the first one that
    # only a row ahead has.
    _offered: int = 0
    _free: int = 0
    # What the bigrams lack of the text.
    _unread: list[int] = field(default_factory=list)
    # How many tokens were verified of late; the time that the last pass's guesses took.
    _bought: float = _LEAST_OFFER
    _guessed_s: float = 0.0

    def __post_init__(self) -> None:
        learnt = self.learnt
        self.odds = GuessOdds(learnt.odds)
        if learnt.sessions % _TRY:
            self.pause = learnt.pause if learnt.pause > _PAUSE else 0
            self.quiet = learnt.quiet if learnt.quiet > _QUIET else 0
        learnt.sessions += 1

    @property
    def beside_s(self) -> float:
        """The seconds that its sessions' guesses and drafts took of late."""
        return self.learnt.seconds

    def draft(self, depth: int, price: Price = NO_PRICE) -> GuessTree:
        """Return the guesses that are likeliest to be accepted."""
        self._offered = self._free = 0
        if self.quiet:
            return NO_GUESSES
        self.followers.extend(self._unread)
        self._unread = []
        if not (self._rows or self.followers.after(self.followers.before(0, None))):
            return NO_GUESSES
        began = self.clock()
        by_rows = self._sorted_rows()
        found = likeliest_tree(
            lambda step, token: self._children(step, token, by_rows),
            self._most,
            depth,
            self.branches,
        )
        self._offered = len(found.guesses)
        self._free = next((i for i, g in enumerate(found.guesses) if g.by_row), self._offered)
        if self._rows:
            self._guessed_s += self.clock() - began
            self.learnt.seconds += _SECONDS_SHARE * (self._guessed_s - self.learnt.seconds)
        return found

    @property
    def _most(self) -> int:
        """How many tokens the next draft has at most."""
        return min(self.most_tokens, int(2 * self._bought) + _LEAST_OFFER)

    def _sorted_rows(self) -> list[list[Guess]]:
        """Return the guesses of each row ahead, likeliest first."""
        rows = []
        for ahead, row in enumerate(self._rows, start=self._ahead):
            chances = self.odds.ranked(ahead, len(row))
            guesses = map(Guess, chances, row, repeat(True))
            rows.append(sorted(guesses, key=_chance, reverse=True))
        return rows

    def _children(
        self, step: int, guessed: int | None, by_rows: Sequence[Sequence[Guess]]
    ) -> Sequence[Guess]:
        """Return the guesses of the step-th token to come after a guessed one, likeliest first."""
        row = by_rows[step] if step < len(by_rows) else ()
        after = self.followers.after(self.followers.before(step, guessed))
        if not after:
            return row
        chances = self.odds.ranked(FOLLOWER, len(after))
        guesses = [
            *map(Guess, chances, after, repeat(False)),
            *(guess for guess in row if guess.token not in after),
        ]
        return sorted(guesses, key=_chance, reverse=True)

    def rows_ahead(self, drafted: int, room: int) -> int:
        """Return 0 where guesses of rows are not verified, or lately were not."""
        if self.pause or self.quiet or self._too_dear(drafted):
            return 0
        return max(0, min(MOST_AHEAD, room))

    def _too_dear(self, drafted: int) -> bool:
        return drafted <= self._free < self._offered

    def decided(
        self, drafted: int, tokens: Sequence[int], ahead: Logits, draws: Sequence[RowSampling]
    ) -> None:
        """Follow the odds, and take the guesses of the rows behind the decided tokens."""
        self.pause = max(0, self.pause - 1)
        if self.quiet:
            self.quiet -= 1
            self._rows = ()
            return
        self._rest(drafted)
        self._learn(tokens)
        self._bought = max(float(drafted), _SLOWER * self._bought)
        left = len(tokens) - 1
        if left >= len(ahead):
            self._rows = ()
            return
        began = self.clock()
        most = min(self._most, MOST_GUESSES)
        self._rows, self._ahead = self.guess(ahead[left:], draws[left:], most), 1 + left
        self._guessed_s = self.clock() - began

    def _rest(self, drafted: int) -> None:
        """Rest from rows, or from drafts, of which nothing was bought."""
        learnt = self.learnt
        if self._too_dear(drafted):
            self.pause, learnt.pause = learnt.pause, min(2 * learnt.pause, _LONGEST_PAUSE)
        elif drafted > self._free:
            learnt.pause = _PAUSE
        if self._offered and not drafted:
            self.quiet, learnt.quiet = learnt.quiet, min(2 * learnt.quiet, _LONGEST_QUIET)
        elif drafted:
            learnt.quiet = max(_QUIET, learnt.quiet // 2)

    def _learn(self, tokens: Sequence[int]) -> None:
        before = None
        for step, token in enumerate(tokens):
            after = self.followers.after(self.followers.before(step, before))
            row = self._rows[step] if step < len(self._rows) else ()
            among = after.index(token) if token in after else None
            rank = row.index(token) if among is None and token in row else None
            for odds in (self.odds, self.learnt.odds) if after or row else ():
                odds.learn(FOLLOWER, len(after), among)
                odds.learn(self._ahead + step, len(row), rank)
            before = token

    def extend(self, tokens: Sequence[int]) -> None:
        """Follow the text's bigrams, once they are needed."""
        self._unread += tokens

    def forget(self) -> None:
        """Drop the guesses of rows."""
        self._rows, self._offered, self._free = (), 0, 0

    def foreseen(self, tokens: Sequence[int], price: Price) -> int:
        """Return 0: no rows were ahead."""
        return 0


_chance = attrgetter("chance")
