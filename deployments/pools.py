"""The deployments of an application: how many replicas, on what, and what each part has beside."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, model_validator

from deployments.autoscaling.config import BoundsConfig
from deployments.canary.config import CanaryConfig
from deployments.ingress.direct.config import DirectConfig
from deployments.ingress.playground.config import PlaygroundConfig
from deployments.ingress.rpc.config import RpcConfig
from deployments.observability.acceptance import BandConfig
from deployments.observability.collector import TracingConfig
from drafter_service.config import DrafterConfig
from foredraft.rpc.config import NO_DELAY, LinkConfig
from foredraft.strict import StrictModel
from verifier_service.config import VerifierConfig

_SURGE_PERCENT = 25


class PoolConfig(StrictModel):
    """How many replicas of a deployment run and what Ray reserves for each."""

    num_replicas: int = Field(default=1, ge=1, le=1024, description="Number of replicas.")
    num_cpus: float = Field(
        default=0.1, ge=0, description="CPUs that Ray reserves for each replica or rank."
    )
    num_gpus: float = Field(
        default=0, ge=0, description="GPUs that Ray reserves for each replica or rank."
    )
    node_labels: dict[str, str] = Field(
        default={}, description="Labels of the nodes that the replicas may run on; empty: any."
    )
    pin_cpus: tuple[int, ...] = Field(
        default=(), description="Numbers of the CPUs that the replicas run on; empty: any."
    )
    drain_s: float = Field(
        default=5,
        ge=0,
        le=600,
        description="Time for open sessions to end when a replica stops, in seconds.",
    )
    surge_percent: int | None = Field(
        default=None,
        ge=0,
        le=100,
        description="Replicas that an update starts before it stops others, in percent, rounded "
        "up; 0: it stops first. Null: 25, and 0 with GPUs, of which there is rarely one more.",
    )

    @property
    def surge(self) -> int:
        """How many replicas an update starts before it stops others, in percent."""
        if self.surge_percent is None:
            return 0 if self.num_gpus else _SURGE_PERCENT
        return self.surge_percent


class TensorConfig(StrictModel):
    """How large tensors (features of the target) travel between replicas: docs/protocol.md."""

    same_node_mib: float | None = Field(
        default=2,
        ge=0,
        description="Least size of a tensor that goes through Ray's object store to a replica on "
        "the same node, in MiB; null: none does, all go in chunks.",
    )
    other_node_mib: float | None = Field(
        default=8,
        ge=0,
        description="The same for a replica on another node.",
    )
    max_mib: float = Field(
        default=1024,
        ge=0,
        description="Most that a replica keeps in the object store, in MiB; beyond it tensors go "
        "in chunks.",
    )
    timeout_s: float = Field(
        default=2.0,
        gt=0,
        le=60,
        description="Time after which a tensor in the object store counts as lost, in seconds.",
    )


class ScaledPoolConfig(PoolConfig):
    """A deployment whose number of replicas a policy may change."""

    autoscaling: BoundsConfig | None = Field(
        default=None,
        description="Bounds of an autoscaled pool, in place of num_replicas; goes with "
        "autoscaling_policy of the application. Null: num_replicas.",
    )


class DrafterPool(ScaledPoolConfig):
    """The drafter deployment."""

    link: LinkConfig = Field(
        default=NO_DELAY, description="Delay of every message to and from a drafter."
    )
    service: DrafterConfig = Field(
        default=DrafterConfig(model=Path("models/embedded/drafter")),
        description="The service in each replica; its host is the replica's node.",
    )
    canary: CanaryConfig | None = Field(
        default=None,
        description="Another drafter for a share of the sessions, promoted or rolled back once it "
        "is known to be as good or worse; null: none.",
    )


class VerifierPool(ScaledPoolConfig):
    """The verifier deployment."""

    link: LinkConfig = Field(
        default=NO_DELAY, description="Delay of every message to and from a verifier."
    )
    service: VerifierConfig = Field(
        default=VerifierConfig(model=Path("models/embedded/target")),
        description="The service in each replica; its host is the replica's node.",
    )

    @model_validator(mode="after")
    def _one_at_least(self) -> VerifierPool:
        if self.autoscaling is not None and self.autoscaling.min_replicas < 1:
            raise ValueError("min_replicas must be at least 1: nothing decodes without a verifier")
        return self


class IngressConfig(PoolConfig):
    """The HTTP ingress, which holds the orchestrator."""

    max_ongoing_requests: int = Field(
        default=64, ge=1, description="Most requests that a replica runs at once."
    )
    max_queued_requests: int = Field(
        default=256,
        ge=0,
        description="Most requests that wait beyond those; more get HTTP 429 on the ingress's own "
        "port, 503 from Serve's proxy.",
    )
    queue_timeout_s: float = Field(
        default=30.0,
        ge=0,
        description="Longest wait of a request on the ingress's own port, in seconds; then 429.",
    )
    keys_file: Path | None = Field(
        default=None,
        description="File of API keys, made by `foredraft keys add`; null: no key is asked for.",
    )
    cors_origins: tuple[str, ...] = Field(
        default=(), description="Origins whose pages may call from a browser; `*` for any."
    )
    playground: PlaygroundConfig = Field(
        default=PlaygroundConfig(), description="The page at the application's first URL."
    )
    acceptance: BandConfig = Field(
        default=BandConfig(), description="When the acceptance of drafts raises an alarm."
    )
    tracing: TracingConfig = Field(
        default=TracingConfig(), description="Traces of requests, by OpenTelemetry."
    )
    grpc: RpcConfig | None = Field(
        default=None, description="gRPC for other services; null: none is served."
    )
    direct: DirectConfig | None = Field(
        default=None,
        description="HTTP on a port of the ingress's own, without Serve's proxy; null: none.",
    )
