"""A circuit breaker: stops asking a drafter that keeps failing, and probes it again. Pure.

closed: all is well. open: failed `threshold` times in a row; nothing is asked until `retry_at`.
half-open: that time has come; the next outcome closes it, or opens it for twice as long.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum


class BreakerState(StrEnum):
    """The three states of a circuit breaker."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


@dataclass(frozen=True, slots=True)
class Breaker:
    """One peer's record. Times are seconds on the caller's clock, passed in as `now`."""

    threshold: int
    cooldown_s: float
    max_cooldown_s: float
    failures: int = 0
    retry_at: float | None = None
    pause_s: float = 0.0

    def state(self, now: float) -> BreakerState:
        """Return the state at `now`."""
        if self.retry_at is None:
            return BreakerState.CLOSED
        return BreakerState.OPEN if now < self.retry_at else BreakerState.HALF_OPEN

    def failed(self, now: float) -> Breaker:
        """Return the breaker after a failure at `now`."""
        failures = self.failures + 1
        if self.retry_at is None and failures < self.threshold:
            return replace(self, failures=failures)
        pause = min(2 * self.pause_s or self.cooldown_s, self.max_cooldown_s)
        return replace(self, failures=failures, retry_at=now + pause, pause_s=pause)

    def tried(self, now: float) -> Breaker:
        """Return the breaker after a try began at `now`: until its outcome nothing else is asked,
        or for another pause.
        """
        return replace(self, retry_at=now + self.pause_s)

    def succeeded(self) -> Breaker:
        """Return the breaker after a success."""
        if self.failures == 0:
            return self
        return replace(self, failures=0, retry_at=None, pause_s=0.0)

    def wait_s(self, now: float) -> float:
        """Return how long nothing may be asked, in seconds; 0 unless open."""
        return max(0.0, self.retry_at - now) if self.retry_at is not None else 0.0
