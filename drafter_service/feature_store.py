"""The target's fused features of one session's prefix, as the drafter was told them. Pure."""

from __future__ import annotations

from typing import Protocol

from foredraft.errors import InvalidRequest
from foredraft.features.wire import check, size


class Features(Protocol):
    """What one session's drafter knows of features (foredraft.features.wire).

    They are kept as they came, so that keys and values that gave way to another session's can be
    rebuilt.
    """

    def assign(self, keep_len: int, end: int, data: bytes) -> int:
        """Keep those of the first keep_len tokens and take data, which goes on from there.

        `end` is the number of tokens that may have features. Return how many of the text's first
        tokens are cached rightly, if they were until now. Raise InvalidRequest naming features,
        leaving all as it was, if data is not what it should be.
        """

    def known(self, length: int) -> int:
        """Return how many of a text's first `length` tokens can be cached."""

    def of(self, start: int, end: int) -> bytes:
        """Return what a model is told that is fed tokens [start, end)."""


class NeededFeatures:
    """Features of the prefix's first tokens, without which they cannot be cached.

    Of width 0 where a model reads none.
    """

    def __init__(self, width: int) -> None:
        self._width = width
        self._count = 0
        self._data = bytearray()

    def assign(self, keep_len: int, end: int, data: bytes) -> int:
        """Take data for the rest of the first end tokens."""
        kept = min(self._count, keep_len, end)
        check(data, end - kept, self._width)
        del self._data[size(kept, self._width) :]
        self._data += data
        self._count = end
        return end + 1

    def known(self, length: int) -> int:
        """Only tokens with features are cached."""
        return min(length, self._count) if self._width else length

    def of(self, start: int, end: int) -> bytes:
        """Return the features of tokens [start, end), of as many as have some."""
        return bytes(self._data[size(start, self._width) : size(end, self._width)])


class HelpfulFeatures:
    """Features of some tokens from `first` on; each helps to read the token behind it.

    What was read without, as when the drafter ran ahead of them, is read again once they are here.
    """

    def __init__(self, width: int, first: int) -> None:
        self._width, self._first = width, first
        self._count = first
        self._data = bytearray()

    def assign(self, keep_len: int, end: int, data: bytes) -> int:
        """Take the features of the tokens behind those that are kept, as many as data has."""
        kept = max(self._first, min(self._count, keep_len))
        new = len(data) // size(1, self._width)
        if new > max(0, end - kept):
            raise InvalidRequest(
                f"features of {new} tokens behind {kept} of {end}", param="features"
            )
        check(data, new, self._width)
        del self._data[size(kept - self._first, self._width) :]
        self._data += data
        self._count = kept + new
        return kept + 1 if new else end + 1

    def known(self, length: int) -> int:
        """All can be cached: what has no features yet is read without."""
        return length

    def of(self, start: int, end: int) -> bytes:
        """Return the features of the tokens before [start, end), zeros for those that have none.

        Nothing if none of them has any.
        """
        begin, stop = max(start - 1, self._first), min(end - 1, self._count)
        if begin >= stop:
            return b""
        one = size(1, self._width)
        told = self._data[(begin - self._first) * one : (stop - self._first) * one]
        return bytes((begin - start + 1) * one) + bytes(told) + bytes((end - 1 - stop) * one)
