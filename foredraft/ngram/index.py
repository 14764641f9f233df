"""Where a text's last tokens stood in it before, and what followed. Pure, standard library only."""

from __future__ import annotations

from collections.abc import Sequence

PSEUDOCOUNTS = (32.0, 16.0, 8.0, 4.0, 2.0)
"""What an estimate is worth, in occurrences, against what followed the last 1, 2, ... tokens."""
WINDOW = 2048
"""How many of a text's last tokens are looked at."""
DEPTH = 12
"""The longest branch of a tree, in tokens."""


class NgramIndex:
    """The n-grams of up to `longest` + 1 tokens that end in the last `window` tokens of a text.

    places bounds at how many places of a token is looked, the last ones; None for all.
    """

    def __init__(
        self,
        text: Sequence[int],
        longest: int,
        window: int = WINDOW,
        places: int | None = None,
    ) -> None:
        self._text, self._longest, self._most = text, longest, places
        self._tail = tuple(text[max(0, len(text) - longest) :])
        self._first = max(0, len(text) - window - 1)
        self._places: dict[int, list[int]] = {}

    def followers(self, path: tuple[int, ...]) -> list[dict[int, int]]:
        """Return how often each token followed the last 1, 2, ... `longest` tokens, while any did.

        The last tokens are those of the path, which continues the text, and before it the text's.
        What followed last comes first.
        """
        history, text = (self._tail + path)[::-1][: self._longest], self._text
        found: list[dict[int, int]] = []
        for place in reversed(self._places_of(history[0]) if history else ()):
            follower = text[place + 1]
            for length, token in enumerate(history):
                if length > place or text[place - length] != token:
                    break
                if length == len(found):
                    found.append({})
                found[length][follower] = found[length].get(follower, 0) + 1
        return found

    def longest_match(self, shortest: int) -> int:
        """Return where the longest earlier match of the text's end ends, exclusive; 0 if none does.

        A match has shortest to `longest` tokens; of equally long ones the latest counts.
        """
        history, text = self._tail[::-1], self._text
        best, end = shortest - 1, 0
        for place in reversed(self._places_of(history[0]) if history else ()):
            size, most = 1, min(len(history), place + 1)
            while size < most and text[place - size] == history[size]:
                size += 1
            if size > best:
                best, end = size, place + 1
                if size == self._longest:
                    break
        return end

    def _places_of(self, token: int) -> list[int]:
        """Return where the text has the token, but for its end; of many places the last.

        list.index, because a loop in Python over a long text would hold up the round.
        """
        found = self._places.get(token)
        if found is None:
            found = self._places[token] = []
            at, end = self._first, len(self._text) - 1
            while at < end:
                try:
                    at = self._text.index(token, at, end)
                except ValueError:
                    break
                found.append(at)
                at += 1
            if self._most is not None:
                del found[: -self._most]
        return found


def mix(
    tokens: list[int],
    shares: list[float],
    followed: Sequence[dict[int, int]],
    pseudocounts: Sequence[float],
) -> float:
    """Add what followed to the tokens that are expected next and their shares, in place.

    followed [o] is how often each token followed the last o + 1, and pseudocounts [o] is a_o:
    p_o = (a_o p_{o-1} + counts) / (a_o + total), with the shares as they were first. Return what
    share is left of those.
    """
    left = 1.0
    for a, counts in zip(pseudocounts, followed, strict=False):
        total = a + sum(counts.values())
        shares[:] = [a * share / total for share in shares]
        left *= a / total
        for token, count in counts.items():
            if token not in tokens:
                tokens.append(token)
                shares.append(0.0)
            shares[tokens.index(token)] += count / total
    return left
