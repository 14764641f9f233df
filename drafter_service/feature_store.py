"""The target's fused features of one session's prefix, as they came to the drafter. Pure."""

from __future__ import annotations

from foredraft.features.wire import check, size


class FeatureStore:
    """Features (foredraft.features.wire) of the prefix's first tokens; width 0 if none are read.

    A token's row reads those of the lag-th token before it, and cannot be cached without. They are
    kept as they came, so that keys and values that gave way to another session's can be rebuilt.
    """

    def __init__(self, width: int, lag: int = 0) -> None:
        self._width, self._lag = width, lag
        self._count = 0
        self._data = bytearray()

    def assign(self, keep_len: int, end: int, data: bytes) -> None:
        """Keep those of the first keep_len tokens; take data for the rest of the first end tokens.

        Raise InvalidRequest naming features, leaving all as it was, if data is not what it should
        be.
        """
        kept = min(self._count, keep_len, end)
        check(data, end - kept, self._width)
        del self._data[size(kept, self._width) :]
        self._data += data
        self._count = end

    def known(self, length: int) -> int:
        """Return how many of a text's first `length` tokens can be cached."""
        return min(length, self._count + self._lag) if self._width else length

    def of(self, start: int, end: int) -> bytes:
        """Return the features for the rows of tokens [start, end), of as many as have some."""
        start, end = (max(0, each - self._lag) for each in (start, end))
        return bytes(self._data[size(start, self._width) : size(end, self._width)])
