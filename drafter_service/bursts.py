"""Whether a batch waits for the rest of a burst of proposals. Pure.

Verdicts come in bursts, and so do the proposals that follow them. Where a batch costs about as much
for many blocks as for one, a batch that begins with the first proposal leaves all others to the
next one. How soon proposals follow each other is learnt, and how many come late; a batch waits for
them if that saves more than it costs.
"""

from __future__ import annotations

# How fast the averages follow.
_SHARE = 0.1
# A burst is over once nothing came for so many of its usual gaps.
_GAPS = 3.0
# Longer pauses, in batches' fixed costs, are between bursts.
_LONGEST_GAP = 0.25
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


class Bursts:
    """Follows one queue's proposals; times are in seconds of one clock."""

    def __init__(self) -> None:
        self._costs = BatchCosts()
        self._gap_s = 0.0
        self._late = 0.0
        self._last = float("-inf")
        # When the batch that waits could have begun, None while there is none; since then, or
        # since a batch that did not wait, proposals are late until `until`.
        self._since: float | None = None
        self._until = float("-inf")
        self._count = 0

    def arrived(self, now: float) -> None:
        """Take note of a proposal."""
        gap_s = now - self._last
        self._last = now
        if gap_s < _LONGEST_GAP * self._costs.fixed_s:
            self._gap_s += _SHARE * (gap_s - self._gap_s)
        self._count += now <= self._until

    def patience_s(self, now: float, present: int) -> float:
        """Return how long a batch of the present proposals should still wait."""
        wait_s = _GAPS * self._gap_s
        if self._since is None:
            self._late += _SHARE * (self._count - self._late)
            self._count = 0
            self._since, self._until = now, now + wait_s
        if self._late * self._costs.fixed_s <= (present + self._late) * wait_s:
            return 0.0
        # Each arrival puts the end off, but not beyond what a batch costs.
        end = min(self._last + wait_s, self._since + self._costs.fixed_s)
        return max(0.0, end - now)

    def done(self, blocks: int, seconds: float) -> None:
        """Take note of a batch that took so many seconds."""
        self._since = None
        self._costs.observe(blocks, seconds)
