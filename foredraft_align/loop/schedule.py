"""Learning rate by elapsed time: warm-up, stable, decay. A slow or shared machine cannot cut off
the decay.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TimedWSD:
    """Peak learning rate over `seconds` of training time; fractions are shares of that time."""

    peak: float
    seconds: float
    warmup: float = 0.02
    decay: float = 0.42
    floor: float = 0.01

    def progress(self, elapsed: float) -> float:
        """Share of the budget that is used, in [0, 1]."""
        return min(1.0, elapsed / self.seconds)

    def decaying(self, elapsed: float) -> bool:
        """Whether the decay phase has begun."""
        return self.progress(elapsed) > 1 - self.decay

    def rate(self, elapsed: float) -> float:
        """Learning rate after `elapsed` seconds of training."""
        done = self.progress(elapsed)
        if done < self.warmup:
            return self.peak * max(0.02, done / self.warmup)
        left = min(1.0, (1 - done) / self.decay)
        return self.peak * (self.floor + (1 - self.floor) * left)
