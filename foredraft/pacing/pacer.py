"""Makes forward passes take the time of a modelled device, and counts those that could not."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, runtime_checkable

from foredraft.pacing.config import PaceConfig, Work


class Pacer:
    """Paces one engine's passes; clock and sleep are in seconds."""

    def __init__(
        self,
        pace: PaceConfig,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._pace, self._clock, self._sleep = pace, clock, sleep
        self._passes = self._late = 0
        self._modelled_s = self._overrun_s = self._prefill_s = 0.0
        self._rounds = Work(0, 0, 0)

    @contextmanager
    def passing(self, work: Work, rounds: Work) -> Iterator[None]:
        """Have what happens inside last as long as a pass over work; without prefill: rounds.

        If it lasts longer by itself, the pass is late.
        """
        began = self._clock()
        yield
        seconds = self._seconds(work)
        left = began + seconds - self._clock()
        if left > 0:
            self._sleep(left)
        self._passes += 1
        self._late += left < 0
        self._modelled_s += seconds
        self._prefill_s += seconds - (self._seconds(rounds) if rounds.sessions else 0.0)
        self._rounds = Work(*map(sum, zip(self._rounds, rounds, strict=True)))
        # Late passes, and sleep that lasted too long.
        self._overrun_s += max(0.0, self._clock() - began - seconds)

    def _seconds(self, work: Work) -> float:
        return self._pace.slowdown * self._pace.pass_s(work)

    def gauges(self) -> dict[str, float]:
        """Return sums over the passes so far, seconds with the slowdown.

        modelled_s is what they should have taken, prefill_s the part of it that prefill added,
        overrun_s what they took longer. rounds are what sessions' rounds were in them, with
        round_rows rows after round_context tokens.
        """
        return {
            "paced_passes": float(self._passes),
            "late_passes": float(self._late),
            "modelled_s": self._modelled_s,
            "prefill_s": self._prefill_s,
            "overrun_s": self._overrun_s,
            "paced_rounds": float(self._rounds.sessions),
            "round_rows": float(self._rounds.rows),
            "round_context": float(self._rounds.context),
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
