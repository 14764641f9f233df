"""Whether drafts are accepted as often as they should be: an alarm with a band. Pure.

Far below its band a drafter is stale, or was taught for another target; far above, texts repeat
themselves, and a speed measured on them means little.
"""

from __future__ import annotations

from collections import deque
from enum import IntEnum

from pydantic import Field

from foredraft.strict import StrictModel
from orchestrator.report import SpeculationReport


class Alarm(IntEnum):
    """Where the share of accepted draft positions lies."""

    BELOW = -1
    WITHIN = 0
    ABOVE = 1


class BandConfig(StrictModel):
    """The band of the share of draft positions that is accepted."""

    low: float = Field(default=0.05, ge=0, le=1, description="Least share that raises no alarm.")
    high: float = Field(default=0.97, ge=0, le=1, description="Largest share that raises none.")
    positions: int = Field(
        default=2000, ge=1, description="Observed draft positions that the share is taken over."
    )


class AcceptanceWatch:
    """The share of the last observed draft positions that was accepted, and its alarm.

    A tree counts as one position at each of its levels, and positions behind a rejected one are
    not observed. There is no alarm before there are enough positions.
    """

    def __init__(self, band: BandConfig) -> None:
        self._band = band
        self._last: deque[tuple[int, int]] = deque()
        self._accepted = self._observed = 0

    @property
    def rate(self) -> float:
        """The share, 0 where nothing was observed."""
        return self._accepted / self._observed if self._observed else 0.0

    @property
    def alarm(self) -> Alarm:
        """Whether the share has left its band."""
        if self._observed < self._band.positions or self._band.low <= self.rate <= self._band.high:
            return Alarm.WITHIN
        return Alarm.BELOW if self.rate < self._band.low else Alarm.ABOVE

    def add(self, report: SpeculationReport) -> None:
        """Count a session's draft rounds."""
        accepted = sum(kept * count for (kept, _), count in report.depths.items())
        rejected = sum(count for (kept, depth), count in report.depths.items() if kept < depth)
        if not accepted + rejected:
            return
        self._enter(accepted, accepted + rejected)
        while self._observed - self._last[0][1] >= self._band.positions:
            kept, seen = self._last.popleft()
            self._accepted -= kept
            self._observed -= seen

    def _enter(self, accepted: int, observed: int) -> None:
        self._last.append((accepted, observed))
        self._accepted += accepted
        self._observed += observed
