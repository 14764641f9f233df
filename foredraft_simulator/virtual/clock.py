"""A replica's clock: the loop's time, and what its engine has computed since the loop moved on."""

from __future__ import annotations

from collections.abc import Callable


class EngineClock:
    """An engine computes at once; the seconds that it spends move its own clock ahead.

    The loop catches up before anything that was computed is handed out.
    """

    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self._ahead_s = 0.0

    def now(self) -> float:
        """Return the engine's time."""
        return self._time() + self._ahead_s

    def spend(self, seconds: float) -> None:
        """Let a computation take so long."""
        self._ahead_s += seconds

    def caught_up(self) -> float:
        """Return how far the engine is ahead, and let the loop's time be its own again."""
        ahead, self._ahead_s = self._ahead_s, 0.0
        return ahead
