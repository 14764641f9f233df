"""How often a target's guesses of a token are right, by where they come from and by rank. Pure."""

from __future__ import annotations

from collections.abc import Sequence

MOST_AHEAD = 3
"""The most rows ahead that a pass has: tokens of deeper branches are guessed too seldom."""
MOST_GUESSES = 128
"""The most guesses of a row."""
# Ranks 0, 1, 2 to 3, 4 to 7 and so on are alike.
_OF_RANK = tuple(rank.bit_length() for rank in range(MOST_GUESSES))
_RANKS = 1 + _OF_RANK[-1]
_KINDS = (1 + MOST_AHEAD) * _RANKS
# How many guesses what is expected at first weighs, and at most what others found out; and how many
# are remembered.
_FIRST_WEIGHT, _KNOWN_WEIGHT, _REMEMBERED = 4.0, 50.0, 2000.0

FOLLOWER = 0
"""The source of a guess from the text's own bigrams; a row that is n tokens ahead is source n."""


def kind(source: int, rank: int) -> int:
    """Return the index of guesses of a source that are alike."""
    return source * _RANKS + _OF_RANK[rank]


def _first(kind_: int) -> float:
    """Return the chance that a guess has as long as nothing is known: high, so that it is tried."""
    return 0.5 ** (1 + kind_ % _RANKS)


class GuessOdds:
    """The share of right guesses of each kind, beginning with those of `known`.

    chances are of one guess of each kind.
    """

    chances: list[float]

    def __init__(self, known: GuessOdds | None = None) -> None:
        self._right = [0.0] * _KINDS
        self._made = [0.0] * _KINDS
        self.chances = list(known.chances) if known else [_first(each) for each in range(_KINDS)]
        seen = [min(made, _KNOWN_WEIGHT) for made in known._made] if known else self._made
        self._prior = [
            (chance * (_FIRST_WEIGHT + made), _FIRST_WEIGHT + made)
            for chance, made in zip(self.chances, seen, strict=True)
        ]

    def learn(self, source: int, count: int, right: int | None) -> None:
        """Count that of the first `count` ranks of a source the `right`-th was the token."""
        first = 0
        while first < count:
            each, end = kind(source, first), min(count, 2 * first or 1)
            self._count(each, end - first, right is not None and first <= right < end)
            first = end

    def _count(self, each: int, guesses: int, right: bool) -> None:
        self._made[each] += guesses
        self._right[each] += right
        if self._made[each] > _REMEMBERED:
            self._made[each] /= 2
            self._right[each] /= 2
        expected, weight = self._prior[each]
        self.chances[each] = (self._right[each] + expected) / (self._made[each] + weight)

    def ranked(self, source: int, count: int) -> Sequence[float]:
        """Return the chances of the first `count` ranks of a source."""
        base = source * _RANKS
        return [self.chances[base + each] for each in _OF_RANK[:count]]
