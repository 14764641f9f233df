"""Learning rate by the share of the training that is done: warm-up, stable, decay."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class WSD:
    """Peak learning rate over a training; fractions are shares of it."""

    peak: float
    warmup: float = 0.02
    decay: float = 0.42
    floor: float = 0.01

    def rate(self, done: float) -> float:
        """Learning rate when the share `done`, in [0, 1], of the training is done."""
        if done < self.warmup:
            return self.peak * max(0.02, done / self.warmup)
        left = min(1.0, (1 - done) / self.decay)
        return self.peak * (self.floor + (1 - self.floor) * left)


@dataclass(frozen=True)
class TimedWSD:
    """WSD by elapsed time: a slow or shared machine cannot cut off the decay."""

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
        wsd = WSD(self.peak, self.warmup, self.decay, self.floor)
        return wsd.rate(self.progress(elapsed))
