"""How far a drafter's estimates of its own acceptance hold in one session. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# How fast it forgets: about the last 50 drafts count. The estimates as they are weigh as much as so
# many accepted tokens.
_FADE = 0.98
_WEIGHT = 4.0


@dataclass(frozen=True, slots=True)
class Calibration:
    """Fading sums of the tokens that were accepted, and that were expected to be."""

    accepted: float = 0.0
    expected: float = 0.0

    @property
    def scale(self) -> float:
        """The factor from an estimate to what has to be expected."""
        return self.scale_after(1.0)

    def scale_after(self, prior: float) -> float:
        """Return the same where, before any draft, it was expected to be prior."""
        return (self.accepted + _WEIGHT * prior) / (self.expected + _WEIGHT)

    def after(self, expected: Sequence[float], accepted: int) -> Calibration:
        """Return the sums after one more draft, of which so many tokens were accepted."""
        if not expected:
            return self
        return Calibration(_FADE * self.accepted + accepted, _FADE * self.expected + sum(expected))
