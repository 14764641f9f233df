"""The target's fused features of a session's tokens, between forward passes and verdicts. Pure.

Features of rows that were not computed cannot be had, so a session that requests them shares only
the KV of tokens whose features it does not need.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from foredraft.features.wire import size

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class FeatureLog:
    """One session's features: of the first `num_sent` tokens sent or never requested, then stored.

    Stored features wait for the next verdict.
    """

    def __init__(self, num_sent: int, width: int) -> None:
        self.num_sent = num_sent
        self._width = width
        self._stored = bytearray()
        self._skipped = 0
        self._rows: npt.NDArray[np.uint16] | None = None

    def num_known(self, start: int, rows: int) -> int:
        """Return how many of a pass's first rows, from token start on, need no features."""
        known = self.num_sent + len(self._stored) // size(1, self._width)
        return min(rows, max(0, known - start))

    def add(self, skipped: int, rows: npt.NDArray[np.uint16]) -> None:
        """Hold the features [rows, width] of a pass, without its first `skipped` rows."""
        self._skipped, self._rows = skipped, rows

    def keep(self, rows: Sequence[int]) -> None:
        """Store these rows of the pass, the skipped ones first: they became committed tokens."""
        assert self._rows is not None
        new = [row - self._skipped for row in rows[self._skipped :]]
        self._stored += self._rows[new].tobytes()
        self._rows = None

    def take(self, end: int) -> bytes:
        """Return the features of the tokens up to end that were not sent before."""
        count = size(end - self.num_sent, self._width)
        taken = bytes(self._stored[:count])
        assert len(taken) == count
        del self._stored[:count]
        self.num_sent = end
        return taken

    def drop_kv(self) -> None:
        """Drop what is stored: prefill computes it again."""
        self._stored.clear()
