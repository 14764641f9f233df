"""The one configuration tree. Read once at the edge, strict, passed down in small pieces.

The file is a Ray Serve config, so that `serve run` and `serve deploy` take it as it is. Serve
itself accepts unknown keys silently; `foredraft serve` reads it through `ServeFile`, which does
not. A relative path is looked for beside the file, then among the files that come with Foredraft.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field, model_validator

from deployments.autoscaling.config import BoundsConfig, ScalingConfig
from deployments.ingress.direct.config import DirectConfig
from deployments.ingress.playground.config import PlaygroundConfig
from deployments.ingress.rpc.config import RpcConfig
from deployments.observability.acceptance import BandConfig
from deployments.observability.collector import TracingConfig
from deployments.paths import with_absolute_paths
from drafter_service.config import DrafterConfig
from drafter_service.target_folder import with_target_folder as reading_target
from foredraft.errors import ConfigError, WeightsError
from foredraft.gguf.smollm2 import fetched_models
from foredraft.model_files import tokenizer_file
from foredraft.rpc.config import NO_DELAY, LinkConfig
from foredraft.strict import StrictModel, parse
from orchestrator.config import OrchestratorConfig
from verifier_service.config import VerifierConfig
from verifier_service.target_folder import with_target_folder

ROOT = Path(__file__).resolve().parent.parent
# What comes with Foredraft: models/, which a checkout links to and an installation has a copy of.
DATA = ROOT / "foredraft_data"
EMBEDDED_FILE = ROOT / "deployments" / "local.yaml"
CHAT_FILE = ROOT / "deployments" / "smollm2.yaml"
PACED_FILE = ROOT / "deployments" / "paced" / "h100_qwen3_8b.yaml"
IMPORT_PATH: Literal["deployments.app:build"] = "deployments.app:build"


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
        default=128, ge=0, description="Most requests that wait for a replica; more get HTTP 503."
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

    @model_validator(mode="after")
    def _one_port_each(self) -> IngressConfig:
        for name, door in (("grpc", self.grpc), ("direct", self.direct)):
            if door is not None and door.port and self.num_replicas > 1:
                raise ValueError(
                    f"{name} needs num_replicas 1: replicas of a node would share its port"
                )
        return self


class ForedraftConfig(StrictModel):
    """What `deployments.app:build` takes as its arguments."""

    model_name: str | None = Field(
        default=None,
        description="Name of the model in the OpenAI API; default: the name of its folder "
        "or GGUF file.",
    )
    tokenizer: Path | None = Field(
        default=None,
        description="Folder of the tokenizer.json that encodes prompts and decodes answers; "
        "default: the target's.",
    )
    orchestrator: OrchestratorConfig = Field(
        default=OrchestratorConfig(), description="How requests are decoded."
    )
    ingress: IngressConfig = Field(default=IngressConfig(), description="The HTTP ingress.")
    drafter: DrafterPool = Field(default=DrafterPool(), description="The drafters.")
    verifier: VerifierPool = Field(default=VerifierPool(), description="The verifiers.")
    tensors: TensorConfig = Field(
        default=TensorConfig(), description="Large tensors between replicas."
    )
    mtls: Path | None = Field(
        default=None,
        description="Folder of certificates, on every node: ingress, verifiers and drafters talk "
        "by mutual TLS (docs/security.md); null: in plain text.",
    )

    @model_validator(mode="after")
    def _one_transport(self) -> ForedraftConfig:
        for name, pool in (("drafter", self.drafter), ("verifier", self.verifier)):
            if pool.service.mtls is not None:
                raise ValueError(f"{name}.service.mtls is mtls of the whole application here")
        return self

    @property
    def name(self) -> str:
        """What clients call the model."""
        return self.model_name or self.verifier.service.model.name

    @property
    def tokenizer_file(self) -> Path:
        """The tokenizer.json that texts are read with, once paths are absolute.

        Raise ConfigError if there is none.
        """
        folder = self.tokenizer or self.verifier.service.model
        found = tokenizer_file(folder)
        if found is None:
            raise ConfigError(f"tokenizer: {folder} has no tokenizer.json", param="tokenizer")
        return found


class HttpOptions(StrictModel):
    """Where Serve's HTTP proxy listens."""

    host: str = Field(default="127.0.0.1", description="Address to listen on.")
    port: int = Field(default=8000, ge=1, le=65535, description="Port to listen on.")
    ssl_keyfile: Path | None = Field(
        default=None, description="The server's private key, for HTTPS; goes with ssl_certfile."
    )
    ssl_certfile: Path | None = Field(
        default=None, description="The server's certificate and those that signed it, for HTTPS."
    )

    @model_validator(mode="after")
    def _both(self) -> HttpOptions:
        if (self.ssl_keyfile is None) != (self.ssl_certfile is None):
            raise ValueError("ssl_keyfile and ssl_certfile go together")
        return self

    @property
    def url(self) -> str:
        """Where the proxy answers."""
        return f"http{'s' if self.ssl_certfile else ''}://{self.host}:{self.port}"


class LogOptions(StrictModel):
    """How the replicas and the proxy log; Serve's own names. No log has prompts or texts."""

    encoding: Literal["TEXT", "JSON"] = Field(
        default="TEXT", description="JSON has one object a line, with request and replica."
    )
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        default="INFO", description="Least level that is logged."
    )
    enable_access_log: bool = Field(default=True, description="Whether every request is logged.")


class ScalingPolicyEntry(StrictModel):
    """The policy that scales drafters and verifiers together; Ray Serve's own keys."""

    policy_function: Literal["deployments.autoscaling.serve_policy:ScalingPolicy"] = Field(
        default="deployments.autoscaling.serve_policy:ScalingPolicy",
        description="Class of the policy.",
    )
    policy_kwargs: ScalingConfig = Field(
        default=ScalingConfig(), description="Which policy, and its parameters."
    )


class ApplicationEntry(StrictModel):
    """The one application of the file."""

    name: str = Field(default="foredraft", description="Name of the application in Ray Serve.")
    route_prefix: str = Field(default="/", description="Path of the application's first URL.")
    import_path: Literal["deployments.app:build"] = Field(
        default=IMPORT_PATH, description="Function that builds the application."
    )
    autoscaling_policy: ScalingPolicyEntry | None = Field(
        default=None, description="How the pools with `autoscaling` are scaled; null: they are not."
    )
    args: ForedraftConfig = Field(default=ForedraftConfig(), description="Foredraft itself.")

    @model_validator(mode="after")
    def _both_pools(self) -> ApplicationEntry:
        parts = (
            self.autoscaling_policy,
            self.args.drafter.autoscaling,
            self.args.verifier.autoscaling,
        )
        if len({part is None for part in parts}) > 1:
            raise ValueError(
                "autoscaling_policy, drafter.autoscaling and verifier.autoscaling go together"
            )
        return self


class ServeFile(StrictModel):
    """A Ray Serve config file that holds Foredraft and nothing unknown."""

    proxy_location: Literal["Disabled", "HeadOnly", "EveryNode"] = Field(
        default="HeadOnly",
        description="Nodes with one of Serve's HTTP proxies; Disabled: none, the ingress listens "
        "itself (`ingress.direct`).",
    )
    http_options: HttpOptions = Field(default=HttpOptions(), description="The HTTP proxy.")
    logging_config: LogOptions = Field(default=LogOptions(), description="Logs.")
    applications: list[ApplicationEntry] = Field(
        min_length=1, max_length=1, description="The one application."
    )

    @model_validator(mode="after")
    def _reachable(self) -> ServeFile:
        if self.proxy_location == "Disabled" and self.application.args.ingress.direct is None:
            raise ValueError("proxy_location Disabled needs args.ingress.direct: nobody listens")
        return self

    @property
    def application(self) -> ApplicationEntry:
        """The application entry."""
        return self.applications[0]

    @property
    def url(self) -> str:
        """Where the application answers: through Serve's proxies, where there are some."""
        direct = self.application.args.ingress.direct
        if self.proxy_location == "Disabled" and direct is not None:
            return direct.url
        return self.http_options.url + self.application.route_prefix.rstrip("/")

    @property
    def certificate(self) -> Path | None:
        """The certificate of whoever answers there, None for plain HTTP."""
        direct = self.application.args.ingress.direct
        if self.proxy_location == "Disabled" and direct is not None:
            return None if direct.tls is None else direct.tls.certfile
        return self.http_options.ssl_certfile


def read(path: Path) -> ServeFile:
    """Return the file's configuration, its paths absolute.

    Raise ConfigError naming the first bad key or value, or the path that does not exist.
    """
    try:
        values: Any = yaml.safe_load(path.read_text())
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}", param="config") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not YAML: {error}", param="config") from None
    file = parse(ServeFile, values)
    entry = file.application
    folder = path.absolute().parent
    placed = _placed(entry.args, (folder, DATA, fetched_models()))
    http = with_absolute_paths(file.http_options, (folder,), "http_options")
    applications = [entry.model_copy(update={"args": placed})]
    return file.model_copy(update={"applications": applications, "http_options": http})


def located(config: ForedraftConfig) -> ForedraftConfig:
    """Return a configuration that was read from no file with its paths absolute.

    Raise ConfigError as `read` does.
    """
    return _placed(config, (DATA, fetched_models()))


def _placed(config: ForedraftConfig, places: Sequence[Path]) -> ForedraftConfig:
    """Return the configuration with absolute paths, and a folder where the target is a GGUF file.

    Here, once: whoever reads the target's folder sees the converted one.
    """
    config = with_absolute_paths(config, places)
    service, drafter = config.verifier.service, config.drafter.service
    key = "verifier.service.model"
    try:
        found = with_target_folder(service)
        key = "drafter.service.target"
        read = reading_target(drafter)
    except WeightsError as error:
        raise ConfigError(f"{key}: {error}", param=key) from None
    if read is not drafter:
        drafters = config.drafter.model_copy(update={"service": read})
        config = config.model_copy(update={"drafter": drafters})
    if found is service:
        return config
    pool = config.verifier.model_copy(update={"service": found})
    name = config.model_name or service.model.stem
    return config.model_copy(update={"verifier": pool, "model_name": name})


def model_path(path: str | Path) -> str:
    """Return the absolute path of a folder or file that comes with Foredraft."""
    return str(DATA / path)
