"""Whether a batch waits for the rest of a burst of proposals. Pure.

Verdicts come in bursts, and so do the proposals that follow them. Where a batch costs about as much
for many blocks as for one, a batch that begins with the first proposal leaves all others to the
next one. How many proposals follow, and when, is learnt; a batch waits as long as all of them wait
least.
"""

from __future__ import annotations

from collections.abc import Sequence

# How fast the arrivals that are expected follow those that come.
_SHARE = 0.1
# What comes while a batch would compute is counted in so many parts of that time.
_PARTS = 16
# How fast a batch's costs forget: about the last 100 batches count.
_FADE = 0.99


class BatchCosts:
    """Seconds of a batch by its blocks: fixed_s + blocks x (what each costs), least squares."""

    def __init__(self) -> None:
        self._n = self._x = self._y = self._xx = self._xy = 0.0

    @property
    def fixed_s(self) -> float:
        """What a batch costs whatever its size; 0 until batches of several sizes were seen."""
        spread = self._n * self._xx - self._x * self._x
        if spread < 0.01 * max(1.0, self._x * self._x):
            return 0.0
        slope = max(0.0, (self._n * self._xy - self._x * self._y) / spread)
        return max(0.0, (self._y - slope * self._x) / self._n)

    def observe(self, blocks: int, seconds: float) -> None:
        """Learn from a batch."""
        seen = (1.0, blocks, seconds, blocks * blocks, blocks * seconds)
        old = (self._n, self._x, self._y, self._xx, self._xy)
        found = [_FADE * a + b for a, b in zip(old, seen, strict=True)]
        self._n, self._x, self._y, self._xx, self._xy = found


def best_wait(present: int, coming: Sequence[float]) -> int:
    """Return after how many parts of a batch's time it should begin, 0 for now.

    present proposals wait, and coming[i] arrive in the middle of part i. Those that the batch does
    not wait for, but that come before it ends, wait for its end.
    """
    parts = len(coming)

    def waited(start: int) -> float:
        """Parts that all proposals together wait if the batch begins at the end of a part."""
        total = float(present * start)
        for part, count in enumerate(coming):
            begins = start if part < start else start + parts
            total += count * (begins - part - 0.5)
        return total

    return min(range(parts + 1), key=waited)


class Bursts:
    """Follows one queue's proposals; times are in seconds of one clock.

    What comes after the first proposal to an idle engine is another burst than what comes after a
    batch that left some.
    """

    def __init__(self) -> None:
        self._costs = BatchCosts()
        self._expected = {idle: [0.0] * _PARTS for idle in (False, True)}
        # Since when a batch could have begun, None while there is none to wait.
        self._since: float | None = None
        # The time in which arrivals are counted, and whether the engine was idle before it.
        self._begin = self._length = 0.0
        self._idle = True
        self._counts = [0] * _PARTS
        self._ended = float("-inf")

    def arrived(self, now: float) -> None:
        """Take note of a proposal."""
        part = int(_PARTS * (now - self._begin) / self._length) if self._length > 0 else _PARTS
        if 0 <= part < _PARTS:
            self._counts[part] += 1

    def patience_s(self, now: float, present: int) -> float:
        """Return how long a batch of the present proposals should still wait."""
        if self._since is None:
            self._learn()
            self._since = self._begin = now
            self._length = self._costs.fixed_s
            self._idle = now - self._ended > self._length / _PARTS
        if self._length <= 0:
            return 0.0
        gone = int(_PARTS * (now - self._since) / self._length)
        if gone >= _PARTS:
            return 0.0
        coming = [*self._expected[self._idle][gone:], *[0.0] * gone]
        parts = best_wait(present, coming)
        end = self._since + (gone + parts) * self._length / _PARTS
        return max(0.0, end - now) if parts else 0.0

    def done(self, now: float, blocks: int, seconds: float) -> None:
        """Take note of a batch that ends now and took so many seconds."""
        self._since, self._ended = None, now
        self._costs.observe(blocks, seconds)

    def _learn(self) -> None:
        """Learn when proposals came after the last batch could have begun."""
        if self._length > 0:
            expected = self._expected[self._idle]
            for part, count in enumerate(self._counts):
                expected[part] += _SHARE * (count - expected[part])
        self._counts = [0] * _PARTS
