"""Which drafters a session goes to: those that all sessions share, or a canary's. Strategies."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from foredraft.messages import DraftOpen
from orchestrator.ports import DrafterPort, DraftStream
from orchestrator.report import SpeculationReport

STABLE, CANARY = "stable", "canary"


class Arm(NamedTuple):
    """Where a session's drafts come from; ended takes its report and seconds at its end."""

    name: str
    drafters: DrafterPort
    ended: Callable[[SpeculationReport, float], None]


class Arms(Protocol):
    """Chooses an arm for each session."""

    def choose(self) -> Arm:
        """Return the next session's arm."""


class Shares(Protocol):
    """A trial, as far as arms need it."""

    @property
    def share(self) -> float:
        """Share of the sessions that the canary drafts for now."""

    def ended(self, arm: str, report: SpeculationReport, seconds: float) -> None:
        """Count a session that ended."""


class OneArm:
    """All sessions have the same drafters."""

    def __init__(self, drafters: DrafterPort) -> None:
        self._arm = Arm(STABLE, drafters, lambda report, seconds: None)

    def choose(self) -> Arm:
        """Return the one arm."""
        return self._arm


class TwoArms:
    """A share of the sessions goes to a canary; draw is uniform on [0, 1)."""

    def __init__(
        self, stable: DrafterPort, canary: DrafterPort, trial: Shares, draw: Callable[[], float]
    ) -> None:
        self._trial, self._draw = trial, draw
        self._stable = Arm(STABLE, stable, self._counted(STABLE))
        there = WhileItLasts(canary, stable, trial)
        self._canary = Arm(CANARY, there, self._counted(CANARY))

    def choose(self) -> Arm:
        """Return the canary's arm with the probability of its share."""
        return self._canary if self._draw() < self._trial.share else self._stable

    def _counted(self, arm: str) -> Callable[[SpeculationReport, float], None]:
        def ended(report: SpeculationReport, seconds: float) -> None:
            self._trial.ended(arm, report, seconds)

        return ended


class WhileItLasts:
    """A canary's drafters while it has a share, else the others: its sessions move to them."""

    def __init__(self, canary: DrafterPort, stable: DrafterPort, trial: Shares) -> None:
        self._canary, self._stable, self._trial = canary, stable, trial

    async def open(self, request: DraftOpen) -> DraftStream:
        """Open the session on some replica."""
        drafters = self._canary if self._trial.share else self._stable
        return await drafters.open(request)
