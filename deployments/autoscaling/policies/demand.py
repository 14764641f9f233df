"""How many verifiers the load needs: the same for every policy that looks at it."""

from __future__ import annotations

from pydantic import Field

from deployments.autoscaling.policies.port import Wish
from deployments.autoscaling.signals import Pool, VerifierSignal
from foredraft.strict import StrictModel


class DemandConfig(StrictModel):
    """Shares that the verifiers are to be used at."""

    busy: float = Field(default=0.7, gt=0, le=1, description="Busy share of a verifier.")
    kv: float = Field(default=0.8, gt=0, le=1, description="Share of its KV that is reserved.")
    waiting: float = Field(
        default=8.0, gt=0, description="Rounds that wait at a verifier beside those in its pass."
    )


def verifiers_needed(pool: Pool[VerifierSignal], config: DemandConfig) -> Wish | None:
    """Return how many verifiers keep all shares below their targets; None, if it is not settled."""
    if not pool.settled:
        return None
    parts = {
        "busy": pool.each * sum(one.busy for one in pool.replicas) / config.busy,
        "KV": pool.each * sum(one.kv for one in pool.replicas) / config.kv,
        "waiting": pool.each * sum(one.waiting for one in pool.replicas) / config.waiting,
    }
    name, need = max(parts.items(), key=lambda part: part[1])
    return Wish(pool.bounded(need), f"{name} needs {need:.2f}")
