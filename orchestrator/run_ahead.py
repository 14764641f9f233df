"""The run-ahead gate: when to draft for a round's predicted outcomes before its verdict. Pure.

The outcome predicted is "all accepted, then the drafter's own guess of the bonus token"
(foredraft.decoding.outcomes).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RunAheadGate:
    """Runs ahead only while outcomes are predicted often enough for it to pay.

    Drafting for an outcome that seldom comes takes the drafter's time from others, delays the draft
    that is needed instead, and, where drafter and verifier share a machine, the verdict as well.
    Every outcome is compared with its prediction, whether or not a draft was requested for it. The
    hit rate is a moving average with weight rho, at first start.
    """

    min_hit_rate: float
    rho: float = 0.2
    start: float = 0.5

    def update(self, hit_rate: float, predicted: bool) -> float:
        """Return the hit rate after one more outcome, that was predicted or not."""
        return (1 - self.rho) * hit_rate + self.rho * predicted

    def is_open(self, hit_rate: float) -> bool:
        """Return whether to draft for predicted outcomes."""
        return hit_rate >= self.min_hit_rate
