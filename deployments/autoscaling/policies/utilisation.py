"""What others do: every pool at a share of its capacity, each for itself."""

from __future__ import annotations

from pydantic import Field

from deployments.autoscaling.policies.demand import DemandConfig, verifiers_needed
from deployments.autoscaling.policies.port import Wish, Wishes
from deployments.autoscaling.signals import PoolName, Signals
from foredraft.strict import StrictModel


class UtilisationConfig(StrictModel):
    """Targets of the policy `utilisation`."""

    verifiers: DemandConfig = Field(default=DemandConfig(), description="Targets of verifiers.")
    drafter_busy: float = Field(default=0.6, gt=0, le=1, description="Busy share of a drafter.")


class Utilisation:
    """Scales drafters by how busy they are; with sessions there is at least one."""

    def __init__(self, config: UtilisationConfig) -> None:
        self._config = config

    @property
    def initial(self) -> None:
        """Nothing is remembered."""
        return None

    def step(self, state: None, signals: Signals) -> tuple[None, Wishes]:
        """Return a wish for each settled pool."""
        wishes: dict[PoolName, Wish] = {}
        if (need := verifiers_needed(signals.verifiers, self._config.verifiers)) is not None:
            wishes[PoolName.VERIFIER] = need
        pool = signals.drafters
        sessions = sum(one.sessions for one in signals.verifiers.replicas)
        if pool.settled:
            load = pool.each * sum(one.busy for one in pool.replicas)
            wanted = max(load / self._config.drafter_busy, 1.0 if sessions else 0.0)
            wishes[PoolName.DRAFTER] = Wish(pool.bounded(wanted), f"busy {load:.2f} in all")
        elif not pool.target and signals.verifiers.replicas:
            wanted = 1.0 if sessions else 0.0
            wishes[PoolName.DRAFTER] = Wish(pool.bounded(wanted), f"{sessions:.0f} sessions")
        return None, wishes
