"""Makes forward passes take the time of a modelled device, and counts those that could not."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, runtime_checkable

from foredraft.pacing.config import PaceConfig


class Pacer:
    """Paces one engine's passes; clock and sleep are in seconds."""

    def __init__(
        self,
        pace: PaceConfig,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._pace, self._clock, self._sleep = pace, clock, sleep
        self._passes = self._late = self._rows = 0
        self._modelled_s = self._overrun_s = 0.0

    @contextmanager
    def passing(self, rows: int, context: int, sessions: int) -> Iterator[None]:
        """Have what happens inside last as long as a pass of these takes (PaceConfig.pass_s).

        If it lasts longer by itself, the pass is late.
        """
        began = self._clock()
        yield
        seconds = self._pace.slowdown * self._pace.pass_s(rows, context, sessions)
        left = began + seconds - self._clock()
        if left > 0:
            self._sleep(left)
        self._passes += 1
        self._late += left < 0
        self._rows += rows
        self._modelled_s += seconds
        # Late passes, and sleep that lasted too long.
        self._overrun_s += max(0.0, self._clock() - began - seconds)

    def gauges(self) -> dict[str, float]:
        """Return the passes so far, their rows, how many were late, what they should have taken in
        all, and what they took longer, in seconds with the slowdown.
        """
        return {
            "paced_passes": float(self._passes),
            "paced_rows": float(self._rows),
            "late_passes": float(self._late),
            "modelled_s": self._modelled_s,
            "overrun_s": self._overrun_s,
        }


class SteppedClock:
    """A clock that only sleep moves on: what it times takes no time."""

    def __init__(self) -> None:
        self._now = 0.0

    def now(self) -> float:
        """Return the seconds slept so far."""
        return self._now

    def sleep(self, seconds: float) -> None:
        """Move the clock on."""
        self._now += seconds


@runtime_checkable
class Paced(Protocol):
    """A model whose passes are paced."""

    def gauges(self) -> dict[str, float]:
        """Return its pacer's."""


def pace_gauges(model: object) -> dict[str, float]:
    """Return the gauges of a paced model, none of another."""
    return model.gauges() if isinstance(model, Paced) else {}
