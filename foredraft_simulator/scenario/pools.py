"""The simulated pools: how many replicas, what each computes with, how it starts and stops."""

from __future__ import annotations

from pydantic import Field

from deployments.autoscaling.config import BoundsConfig
from foredraft.pacing.config import PaceConfig, Work
from foredraft.strict import StrictModel
from foredraft_simulator.scenario.passes import CurveConfig
from foredraft_simulator.services.link import LinkConfig

# Of the H100 in deployments/paced/h100_qwen3_8b.yaml.
_DEVICE = {"bandwidth": 3.35e12, "peak_flops": 989.0e12, "overhead_s": 0.3e-3}
_VERIFIER = PaceConfig(
    weight_bytes=15.1e9, flops_per_token=15.1e9, kv_bytes_per_token=147456, **_DEVICE
)
_DRAFTER = PaceConfig(
    weight_bytes=0.99e9, flops_per_token=0.99e9, kv_bytes_per_token=12288, **_DEVICE
)


class PoolConfig(StrictModel):
    """Replicas of one service."""

    pace: PaceConfig = Field(description="The modelled device and model.")
    curve: CurveConfig | None = Field(
        default=None, description="Measured passes, in place of pace; null: none."
    )
    replicas: int = Field(default=1, ge=0, le=100_000, description="Number of replicas.")
    autoscaling: BoundsConfig | None = Field(
        default=None,
        description="Bounds of an autoscaled pool, in place of replicas; goes with `scaling`.",
    )
    cold_start_s: float = Field(
        default=10.0, ge=0, description="Time from the decision until a replica serves, in seconds."
    )
    drain_s: float = Field(
        default=5.0,
        ge=0,
        description="Time for open sessions to end when a replica stops, in seconds.",
    )
    price: float = Field(
        default=1.0, ge=0, description="Cost of a replica for a second, in units of your choice."
    )
    host_s: float = Field(
        default=0.0,
        ge=0,
        description="Time between two passes that the engine's own code takes, in seconds.",
    )
    host_session_s: float = Field(
        default=0.0, ge=0, description="What each session in a pass adds to that, in seconds."
    )
    message_s: float = Field(
        default=0.0,
        ge=0,
        description="Time in which a replica handles one message; it does one at a time.",
    )

    def pass_s(self, work: Work) -> float:
        """Return what a pass takes, and what the host's code adds for its sessions."""
        if self.curve is not None:
            seconds = self.curve.pass_s(work)
        else:
            seconds = self.pace.slowdown * self.pace.pass_s(work)
        return seconds + self.host_session_s * work.sessions

    @property
    def initial(self) -> int:
        """How many replicas there are at the start."""
        return self.replicas if self.autoscaling is None else self.autoscaling.initial

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the most replicas."""
        bounds = self.autoscaling
        if bounds is None:
            return self.replicas, self.replicas
        return bounds.min_replicas, bounds.max_replicas


class DrafterPoolConfig(PoolConfig):
    """The drafters."""

    pace: PaceConfig = Field(default=_DRAFTER, description="The modelled device and model.")
    price: float = Field(default=0.25, ge=0, description="Cost of a replica for a second.")
    slots: int = Field(default=8, ge=1, le=256, description="Rows of a draft in each pass.")
    passes: int = Field(default=1, ge=1, le=64, description="Forward passes of a draft.")
    max_draft_tokens: int = Field(
        default=64, ge=1, le=256, description="Most tokens of a draft, or nodes of a tree."
    )
    max_sessions: int = Field(
        default=1024, ge=1, description="Most open sessions, each with a cache of its own."
    )
    branch_slots: int = Field(
        default=128, ge=0, description="Cache slots for drafts of predicted outcomes."
    )
    prefill_rows: int = Field(default=64, ge=1, description="Most rows of a prefix in one pass.")
    max_queue: int = Field(default=1024, ge=1, description="Most proposals that wait.")
    link: LinkConfig = Field(
        default=LinkConfig(), description="Each way of a link to a drafter, a verifier's as well."
    )


class VerifierPoolConfig(PoolConfig):
    """The verifiers."""

    replicas: int = Field(default=1, ge=1, le=100_000, description="Number of replicas.")
    pace: PaceConfig = Field(default=_VERIFIER, description="The modelled device and model.")
    kv_tokens: int = Field(default=262144, ge=1024, description="KV cache, in tokens.")
    block_tokens: int = Field(default=64, ge=1, description="Block of the KV cache, in tokens.")
    prefix_cache_tokens: int = Field(
        default=0, ge=0, description="KV kept after its last session has ended, in tokens."
    )
    kv_overcommit: float = Field(
        default=1.0, ge=1, le=64, description="Factor of what sessions may reserve."
    )
    max_sessions: int = Field(default=512, ge=1, description="Most open sessions.")
    row_budget: int = Field(default=1024, ge=2, description="Most rows of a pass.")
    prefill_rows: int = Field(
        default=512, ge=1, description="Rows of a pass that are reserved for waiting prefills."
    )
    leads_rounds: bool = Field(
        default=True, description="Whether verifiers ask drafters themselves, under a lease."
    )
    link: LinkConfig = Field(
        default=LinkConfig(), description="Each way of a link between ingress and verifier."
    )
