"""How busy a worker was lately."""

from __future__ import annotations

from collections import deque


class BusyMeter:
    """Busy time over a sliding window, in whole seconds of the clock; time is an argument.

    total_s is all of it.
    """

    def __init__(self, window_s: int = 5) -> None:
        self._seconds: deque[tuple[int, float]] = deque(maxlen=window_s + 1)
        self._window_s = window_s
        self.total_s = 0.0

    def add(self, started: float, ended: float) -> None:
        """Count [started, ended) as busy, in the second in which it ended."""
        self.total_s += ended - started
        second = int(ended)
        if self._seconds and self._seconds[-1][0] == second:
            self._seconds[-1] = (second, self._seconds[-1][1] + ended - started)
        else:
            self._seconds.append((second, ended - started))

    def fraction(self, now: float) -> float:
        """Return the busy share, 0 to 1, of the window that ends now."""
        first = int(now) - self._window_s + 1
        busy = sum(spent for second, spent in tuple(self._seconds) if second >= first)
        return min(1.0, busy / (now - first)) if now > first else 0.0
