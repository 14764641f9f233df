"""A scenario: the cluster that is simulated, and what happens to it. One strict YAML file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field, model_validator

from deployments.autoscaling.config import ScalingConfig
from deployments.paths import with_absolute_paths
from foredraft.errors import ConfigError
from foredraft.strict import StrictModel, parse
from foredraft_simulator.acceptance.config import AcceptanceConfig, ByDepthConfig
from foredraft_simulator.scenario.pools import DrafterPoolConfig, VerifierPoolConfig
from orchestrator.config import OrchestratorConfig
from orchestrator.length.config import GoodputConfig


class IngressConfig(StrictModel):
    """The ingress, which holds the orchestrator."""

    replicas: int = Field(default=1, ge=1, le=10_000, description="Number of replicas.")
    max_ongoing_requests: int = Field(
        default=512, ge=1, description="Most requests that a replica runs at once; others wait."
    )
    request_s: float = Field(
        default=0.0,
        ge=0,
        description="Time of a request outside the orchestrator: HTTP, tokenizer, in seconds.",
    )
    message_s: float = Field(
        default=0.0,
        ge=0,
        description="Time in which a replica handles one message; it does one at a time.",
    )


class ServeConfig(StrictModel):
    """How fast Ray Serve knows and acts."""

    choose_s: float = Field(
        default=0.0035, ge=0, description="Time in which it chooses a session's replica."
    )
    record_s: float = Field(
        default=2.0, gt=0, description="Time between two readings of a replica's signals."
    )
    push_s: float = Field(
        default=2.0, gt=0, description="Time between two reports of what was read."
    )
    look_back_s: float = Field(
        default=10.0, gt=0, description="Age up to which a policy is shown signals."
    )
    replace_s: float = Field(
        default=1.5, ge=0, description="Time until a lost replica is started anew."
    )


class FailureConfig(StrictModel):
    """Something that goes wrong at a time.

    lost: a replica's process ends. stall: it computes nothing for for_s seconds. cut: the links to
    the pool carry nothing for for_s seconds.
    """

    at_s: float = Field(ge=0, description="When, in seconds since the first request.")
    pool: Literal["drafter", "verifier"] = Field(description="Which pool.")
    kind: Literal["lost", "stall", "cut"] = Field(description="What happens.")
    replicas: int = Field(
        default=1, ge=1, description="To how many of its replicas, for lost and stall."
    )
    for_s: float = Field(default=0.0, ge=0, description="How long, for stall and cut.")

    @model_validator(mode="after")
    def _lasts(self) -> FailureConfig:
        if (self.kind == "lost") != (self.for_s == 0):
            raise ValueError("for_s goes with stall and cut")
        return self


class Scenario(StrictModel):
    """What is simulated."""

    name: str = Field(default="", max_length=128, description="Name, in tables and pictures.")
    orchestrator: OrchestratorConfig = Field(
        default=OrchestratorConfig(adl=GoodputConfig(), verifier_led_rounds=16),
        description="How requests are decoded: the same keys as in a Serve file.",
    )
    speculate: bool = Field(default=True, description="false: every request decodes plainly.")
    ingress: IngressConfig = Field(default=IngressConfig(), description="The ingress.")
    drafter: DrafterPoolConfig = Field(default=DrafterPoolConfig(), description="The drafters.")
    verifier: VerifierPoolConfig = Field(default=VerifierPoolConfig(), description="The verifiers.")
    acceptance: AcceptanceConfig = Field(
        default=ByDepthConfig(), description="How right drafts are."
    )
    scaling: ScalingConfig | None = Field(
        default=None,
        description="The policy of pools with `autoscaling`, as in a Serve file's "
        "policy_kwargs; null: none.",
    )
    serve: ServeConfig = Field(default=ServeConfig(), description="Ray Serve.")
    failures: tuple[FailureConfig, ...] = Field(default=(), description="What goes wrong.")
    settle_s: float = Field(
        default=0.0, ge=0, description="Time that is simulated after the last request has ended."
    )

    @model_validator(mode="after")
    def _scaled_together(self) -> Scenario:
        parts = self.scaling, self.drafter.autoscaling, self.verifier.autoscaling
        if len({part is None for part in parts}) > 1:
            raise ValueError("scaling, drafter.autoscaling and verifier.autoscaling go together")
        bounds = self.verifier.autoscaling
        if bounds is not None and bounds.min_replicas < 1:
            raise ValueError("verifier.autoscaling.min_replicas must be at least 1")
        return self


def read_scenario(path: Path) -> Scenario:
    """Return a file's scenario; raise ConfigError naming the first bad key or value."""
    try:
        values: Any = yaml.safe_load(path.read_text())
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}", param="scenario") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not YAML: {error}", param="scenario") from None
    found = parse(Scenario, {} if values is None else values)
    return with_absolute_paths(found, (path.absolute().parent,))
