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

from deployments.autoscaling.config import ScalingConfig
from deployments.denoiser_pool import DenoiserPool
from deployments.paths import with_absolute_paths
from deployments.pools import DrafterPool, IngressConfig, TensorConfig, VerifierPool
from drafter_service.target_folder import with_target_folder as reading_target
from foredraft.errors import ConfigError, WeightsError
from foredraft.gguf.smollm2 import fetched_models
from foredraft.model_files import tokenizer_file
from foredraft.strict import StrictModel, parse
from orchestrator.config import OrchestratorConfig
from verifier_service.target_folder import with_target_folder

ROOT = Path(__file__).resolve().parent.parent
# What comes with Foredraft: models/, which a checkout links to and an installation has a copy of.
DATA = ROOT / "foredraft_data"
EMBEDDED_FILE = ROOT / "deployments" / "local.yaml"
DIFFUSION_FILE = ROOT / "deployments" / "diffusion.yaml"
CHAT_FILE = ROOT / "deployments" / "smollm2.yaml"
PACED_FILE = ROOT / "deployments" / "paced" / "h100_qwen3_8b.yaml"
RAMP_FILE = ROOT / "deployments" / "paced" / "ramp.yaml"
IMPORT_PATH: Literal["deployments.app:build"] = "deployments.app:build"


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
    denoiser: DenoiserPool | None = Field(
        default=None, description="A block-diffusion target as a second model; null: none."
    )
    tensors: TensorConfig = Field(
        default=TensorConfig(), description="Large tensors between replicas."
    )
    mtls: Path | None = Field(
        default=None,
        description="Folder of certificates, on every node: ingress, verifiers and drafters talk "
        "by mutual TLS (docs/security.md); null: in plain text.",
    )

    @model_validator(mode="after")
    def _fits_together(self) -> ForedraftConfig:
        services = {"drafter": self.drafter.service, "verifier": self.verifier.service}
        if self.denoiser is not None:
            services |= {"denoiser": self.denoiser.service}
            if self.denoiser.name == self.name:
                raise ValueError("denoiser.model_name is the name of the other target, too")
        for name, service in services.items():
            if service.mtls is not None:
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
    service, drafters = config.verifier.service, config.drafter
    key = "verifier.service.model"
    try:
        found = with_target_folder(service)
        key = "drafter.service.target"
        drafters = drafters.model_copy(update={"service": reading_target(drafters.service)})
        if (canary := drafters.canary) is not None:
            key = "drafter.canary.service.target"
            canary = canary.model_copy(update={"service": reading_target(canary.service)})
            drafters = drafters.model_copy(update={"canary": canary})
    except WeightsError as error:
        raise ConfigError(f"{key}: {error}", param=key) from None
    config = config.model_copy(update={"drafter": drafters})
    if found is service:
        return config
    pool = config.verifier.model_copy(update={"service": found})
    name = config.model_name or service.model.stem
    return config.model_copy(update={"verifier": pool, "model_name": name})


def model_path(path: str | Path) -> str:
    """Return the absolute path of a folder or file that comes with Foredraft."""
    return str(DATA / path)
