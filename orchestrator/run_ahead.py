"""Run-ahead: draft for the likely outcome of a round while it is still being verified. Pure.

The outcome predicted is "all accepted, then the drafter's own guess of the bonus token". Blocks
drafted for a predicted prefix wait here, keyed by its hash, until the verdict says whether it came
true.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class RunAheadGate:
    """Runs ahead only while outcomes are foretold often enough for it to pay.

    Drafting for an outcome that seldom comes takes the drafter's time from others, delays the draft
    that is needed instead, and, where drafter and verifier share a machine, the verdict as well. An
    outcome is compared with its prediction whether or not it was drafted for. The share of those
    foretold is a moving average with weight rho, at first start.
    """

    least: float
    rho: float = 0.2
    start: float = 0.5

    def update(self, share: float, foretold: bool) -> float:
        """Return the share after one more outcome, that was foretold or not."""
        return (1 - self.rho) * share + self.rho * foretold

    def is_open(self, share: float) -> bool:
        """Return whether to draft for the predicted outcome."""
        return share >= self.least


class SpeculationCache(Generic[V]):
    """Values of at most `capacity` prefixes, the newest ones, keyed by prefix hash."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._values: dict[int, V] = {}

    def put(self, prefix_hash: int, value: V) -> None:
        """Store a value; the oldest one goes if there is no room."""
        self._values.pop(prefix_hash, None)
        self._values[prefix_hash] = value
        if len(self._values) > self._capacity:
            del self._values[next(iter(self._values))]

    def get(self, prefix_hash: int) -> V | None:
        """Return the value of a prefix, None if there is none."""
        return self._values.get(prefix_hash)

    def clear(self) -> None:
        """Forget everything."""
        self._values.clear()
