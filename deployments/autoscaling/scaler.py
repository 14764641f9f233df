"""One policy over time: signals in, decisions out. Pure but for the state that it holds."""

from __future__ import annotations

from typing import Any

from deployments.autoscaling.config import ScalingConfig
from deployments.autoscaling.signals import PoolName, Signals
from deployments.autoscaling.steps import Decision, Wished, stepped


class Scaler:
    """Decides for both pools; the same signals lead to the same decisions, wherever it runs."""

    def __init__(self, config: ScalingConfig) -> None:
        self._config = config
        self._policy = config.chosen()
        self._state: Any = self._policy.initial
        self._wished = {pool: Wished() for pool in PoolName}

    def decide(self, signals: Signals) -> dict[PoolName, Decision]:
        """Return a decision for each pool that the policy has a wish for."""
        self._state, wishes = self._policy.step(self._state, signals)
        targets = {
            PoolName.DRAFTER: signals.drafters.target,
            PoolName.VERIFIER: signals.verifiers.target,
        }
        found: dict[PoolName, Decision] = {}
        for pool, wish in wishes.items():
            self._wished[pool], found[pool] = stepped(
                self._wished[pool], signals.now, targets[pool], wish, self._config.steps(pool)
            )
        return found
