"""Which text a row of vLLM's batch goes on with: rows have no names and change places. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from foredraft.decoding.prefix import EMPTY_PREFIX_HASH, extend_hash

Tokens = npt.NDArray[np.int32]

# A text that no row has grown from for so many calls has ended.
_FORGOTTEN_AFTER = 32


class Text:
    """One sequence's text so far, and its hash; number is unique among all."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.tokens: Tokens = np.empty(0, np.int32)
        self.hash = EMPTY_PREFIX_HASH
        self.seen = 0

    def grow(self, tokens: Tokens) -> None:
        """Take a text that begins with the one so far."""
        self.hash = extend_hash(self.hash, tokens[len(self.tokens) :].tolist())
        self.tokens = tokens.copy()

    def begins(self, tokens: Tokens) -> bool:
        """Whether a text begins with the one so far."""
        known = self.tokens
        return len(known) <= len(tokens) and bool(np.array_equal(known, tokens[: len(known)]))


class Rows:
    """Finds each row's text, by what it begins with; the place that it last had is tried first."""

    def __init__(self) -> None:
        self._texts: list[Text] = []
        self._places: dict[int, Text] = {}
        self._calls = self._made = 0

    def matched(self, rows: Sequence[tuple[int, Tokens]]) -> list[Text]:
        """Return the text of each row, given with its place, grown to what the row has now."""
        self._calls += 1
        free = set(self._texts)
        found = []
        for place, tokens in rows:
            text = self._of(place, tokens, free)
            free.discard(text)
            text.grow(tokens)
            text.seen = self._calls
            found.append(text)
        self._places = {place: text for (place, _), text in zip(rows, found, strict=True)}
        return found

    def forgotten(self) -> list[Text]:
        """Return the texts that have ended since the last call, and forget them."""
        ended = [each for each in self._texts if self._calls - each.seen >= _FORGOTTEN_AFTER]
        self._texts = [each for each in self._texts if each not in ended]
        return ended

    def _of(self, place: int, tokens: Tokens, free: set[Text]) -> Text:
        last = self._places.get(place)
        if last in free and last is not None and last.begins(tokens):
            return last
        candidates = [text for text in free if text.begins(tokens)]
        if candidates:
            # Of several beginnings the longest: the others are other rows' prompts.
            return max(candidates, key=lambda text: len(text.tokens))
        self._made += 1
        text = Text(self._made)
        self._texts.append(text)
        return text
