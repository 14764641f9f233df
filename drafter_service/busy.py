"""The fraction of recent time that a worker was busy: what the autoscaler of drafters reads."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable


class BusyMeter:
    """Sums busy spans over a sliding window; begin and end are called by one thread."""

    def __init__(self, clock: Callable[[], float], window_s: float = 10.0) -> None:
        self._clock, self._window = clock, window_s
        self._spans: deque[tuple[float, float]] = deque()
        self._since: float | None = None
        self._start = clock()
        self._lock = threading.Lock()

    def begin(self) -> None:
        """The worker starts on something."""
        with self._lock:
            self._since = self._clock()

    def end(self) -> None:
        """The worker is done with it."""
        with self._lock:
            now = self._clock()
            if self._since is not None:
                # Neighbouring spans merge, so the window holds few of them however busy it is.
                if self._spans and now - self._spans[-1][0] < self._window / 100:
                    first, busy = self._spans[-1]
                    self._spans[-1] = (first, busy + now - self._since)
                else:
                    self._spans.append((self._since, now - self._since))
            self._since = None
            self._forget(now)

    def fraction(self) -> float:
        """Return the busy share of the last window_s seconds, from 0 to 1."""
        with self._lock:
            now = self._clock()
            self._forget(now)
            busy = sum(span for _, span in self._spans)
            if self._since is not None:
                busy += now - max(self._since, now - self._window)
            elapsed = min(self._window, now - self._start)
            return min(1.0, busy / elapsed) if elapsed > 0 else 0.0

    def _forget(self, now: float) -> None:
        while self._spans and self._spans[0][0] < now - self._window:
            self._spans.popleft()
