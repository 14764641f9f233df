"""What followed a text's last tokens where they stood in it before. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def counted(text: Sequence[int], longest: int, window: int) -> Sequence[int]:
    """Return the end of text that matters: the window, and what its first n-gram needs."""
    return text[max(0, len(text) - window - longest) :]


class Followers:
    """Counts of the n-grams that end in the last `window` tokens of a text."""

    def __init__(self, text: Sequence[int], longest: int, window: int) -> None:
        self._text, self._longest = counted(text, longest, window), longest
        self._tail = tuple(self._text[max(0, len(self._text) - longest) :])
        first = max(0, len(self._text) - window)
        # Most tokens have few places, so what followed one of them is soon counted.
        self._places: dict[int, list[int]] = {}
        for place in range(max(0, first - 1), len(self._text) - 1):
            self._places.setdefault(self._text[place], []).append(place)

    def behind(self, path: tuple[int, ...]) -> list[dict[int, int]]:
        """Return how often each token followed the last 1, 2, ... `longest` tokens, while any did.

        The last tokens are those of the path, which continues the text, and before it the text's.
        What followed last comes first.
        """
        history, text = (self._tail + path)[::-1][: self._longest], self._text
        found: list[dict[int, int]] = []
        for place in reversed(self._places.get(history[0], ()) if history else ()):
            follower = text[place + 1]
            for length, token in enumerate(history):
                if length > place or text[place - length] != token:
                    break
                if length == len(found):
                    found.append({})
                found[length][follower] = found[length].get(follower, 0) + 1
        return found
