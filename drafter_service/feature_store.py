"""The target's fused features of one session's prefix, as the drafter was told them. Pure."""

from __future__ import annotations

from foredraft.features import check, size


class FeatureStore:
    """Features (foredraft.features) of the prefix's first tokens; of width 0 where none are needed.

    Kept as they came, so that keys and values that gave way to another session's can be rebuilt.
    """

    def __init__(self, width: int) -> None:
        self._width = width
        self._count = 0
        self._data = bytearray()

    def assign(self, keep_len: int, end: int, data: bytes) -> None:
        """Keep those of the first keep_len tokens, and take data for the rest of the first end.

        Raise InvalidRequest naming features, leaving the store as it was, if it is not that.
        """
        kept = min(self._count, keep_len, end)
        check(data, end - kept, self._width)
        del self._data[size(kept, self._width) :]
        self._data += data
        self._count = end

    def known(self, length: int) -> int:
        """Return how many of a text's first `length` tokens have what is needed to cache them."""
        return min(length, self._count) if self._width else length

    def of(self, start: int, end: int) -> bytes:
        """Return the features of tokens [start, end)."""
        return bytes(self._data[size(start, self._width) : size(end, self._width)])
