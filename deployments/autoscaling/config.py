"""How the pools are scaled: the policy, its parameters, and how fast they follow."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from deployments.autoscaling.policies.goodput import Goodput, GoodputConfig
from deployments.autoscaling.policies.port import Policy
from deployments.autoscaling.policies.static import Static
from deployments.autoscaling.policies.utilisation import Utilisation, UtilisationConfig
from deployments.autoscaling.signals import PoolName
from deployments.autoscaling.steps import StepConfig
from foredraft.strict import StrictModel


class BoundsConfig(StrictModel):
    """How many replicas a scaled pool has; Ray Serve's own names."""

    min_replicas: int = Field(default=1, ge=0, le=1024, description="Least number of replicas.")
    max_replicas: int = Field(default=1, ge=1, le=1024, description="Most replicas.")
    initial_replicas: int | None = Field(
        default=None, ge=0, description="Number at the start; null: min_replicas."
    )

    @model_validator(mode="after")
    def _ordered(self) -> BoundsConfig:
        if not self.min_replicas <= self.initial <= self.max_replicas:
            raise ValueError("min_replicas <= initial_replicas <= max_replicas must hold")
        return self

    @property
    def initial(self) -> int:
        """How many replicas there are at the start."""
        return self.min_replicas if self.initial_replicas is None else self.initial_replicas


class StaticConfig(StrictModel):
    """Numbers of the policy `static`."""

    drafters: int = Field(default=1, ge=0, description="Number of drafters.")
    verifiers: int = Field(default=1, ge=1, description="Number of verifiers.")


class ScalingConfig(StrictModel):
    """What `deployments.autoscaling.serve_policy:ScalingPolicy` is made of."""

    policy: Literal["static", "utilisation", "goodput"] = Field(
        default="goodput", description="Which policy decides."
    )
    dry_run: bool = Field(default=False, description="Log decisions and change nothing.")
    interval_s: float = Field(default=1.0, gt=0, description="Time between two decisions.")
    warm_up_s: float = Field(
        default=10.0, ge=0, description="Age up to which a replica's signals are left out."
    )
    drafter_steps: StepConfig = Field(
        default=StepConfig(), description="How fast the drafters follow."
    )
    verifier_steps: StepConfig = Field(
        default=StepConfig(down_hold_s=300), description="How fast the verifiers follow."
    )
    static: StaticConfig = Field(default=StaticConfig(), description="For the policy `static`.")
    utilisation: UtilisationConfig = Field(
        default=UtilisationConfig(), description="For the policy `utilisation`."
    )
    goodput: GoodputConfig = Field(default=GoodputConfig(), description="For the policy `goodput`.")

    def steps(self, pool: PoolName) -> StepConfig:
        """How fast a pool follows."""
        return self.drafter_steps if pool is PoolName.DRAFTER else self.verifier_steps

    def chosen(self) -> Policy[Any]:
        """Return the policy."""
        if self.policy == "static":
            return Static(self.static.drafters, self.static.verifiers)
        if self.policy == "utilisation":
            return Utilisation(self.utilisation)
        return Goodput(self.goodput)
