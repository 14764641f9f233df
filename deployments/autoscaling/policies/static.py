"""As many replicas as at the start, whatever happens."""

from __future__ import annotations

from deployments.autoscaling.policies.port import Wish, Wishes
from deployments.autoscaling.signals import PoolName, Signals


class Static:
    """Wishes given numbers."""

    def __init__(self, drafters: int, verifiers: int) -> None:
        self._wishes = {
            PoolName.DRAFTER: Wish(drafters, "static"),
            PoolName.VERIFIER: Wish(verifiers, "static"),
        }

    @property
    def initial(self) -> None:
        """Nothing is remembered."""
        return None

    def step(self, state: None, signals: Signals) -> tuple[None, Wishes]:
        """Return the same wishes every time."""
        return None, self._wishes
