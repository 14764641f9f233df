"""A text in the drafter's tokens, kept up with as the text changes."""

from __future__ import annotations

from bisect import bisect_right

from drafter_service.proposals.prefix_chain import common
from foredraft.vocabulary import Vocabulary

_OVERLAP = 16


class Reading:
    """One session's text in a vocabulary's tokens; only what may have changed is written again.

    A token depends on the text around it, but hardly on what is more than _OVERLAP tokens away: so
    many before a change are written again, after as many more that are only looked at. Where these
    do not end in a place where a token ended before, the whole text is written.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._data = b""
        self._ids: list[int] = []
        # _ends[i] is where token i ends in _data.
        self._ends: list[int] = []

    def read(self, data: bytes) -> list[int]:
        """Return the tokens of data; the list is not the caller's to change."""
        if data == self._data:
            return self._ids
        known = bisect_right(self._ends, common(self._data, data))
        keep = max(0, known - _OVERLAP)
        tail = self._tail(data, keep) if keep else None
        if tail is None:
            keep, tail = 0, self._vocabulary.write(data)
        self._data = data
        self._ids = self._ids[:keep] + tail
        del self._ends[keep:]
        at = self._ends[-1] if keep else 0
        for token in tail:
            at += len(self._vocabulary.spelling[token])
            self._ends.append(at)
        return self._ids

    def _tail(self, data: bytes, keep: int) -> list[int] | None:
        """Return data's tokens behind the first keep ones, None where no token begins there."""
        at = self._ends[keep - _OVERLAP] if keep > _OVERLAP else 0
        tokens = self._vocabulary.write(data[at:])
        for place, token in enumerate(tokens):
            if at >= self._ends[keep - 1]:
                return tokens[place:] if at == self._ends[keep - 1] else None
            at += len(self._vocabulary.spelling[token])
        return None
