"""The one configuration tree. Read once at the edge, strict, passed down in small pieces.

The file is a Ray Serve config, so that `serve run` and `serve deploy` take it as it is. Serve
itself accepts unknown keys silently; `foredraft serve` reads it through `ServeFile`, which does
not.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml
from pydantic import Field

from deployments.orchestrator.config import OrchestratorConfig
from drafter_service.config import DrafterConfig
from foredraft.errors import ConfigError
from foredraft.model_files import tokenizer_file
from foredraft.strict import StrictModel, parse
from verifier_service.config import FeaturesConfig, VerifierConfig

S = TypeVar("S", DrafterConfig, VerifierConfig)

ROOT = Path(__file__).resolve().parent.parent
DEFAULT_FILE = ROOT / "deployments" / "local.yaml"
IMPORT_PATH: Literal["deployments.app:build"] = "deployments.app:build"


class PoolConfig(StrictModel):
    """How many replicas of a deployment run and what Ray reserves for each."""

    num_replicas: int = Field(1, ge=1, le=1024)
    num_cpus: float = Field(0.1, ge=0)
    num_gpus: float = Field(0, ge=0)
    # CPUs that the replicas keep to, so that services do not push each other about; none: any.
    pin_cpus: tuple[int, ...] = ()
    drain_s: float = Field(5, ge=0, le=600)  # how long a stopping replica serves its sessions


class DrafterPool(PoolConfig):
    """The drafter deployment."""

    service: DrafterConfig = DrafterConfig(model=Path("models/embedded/drafter"))


class VerifierPool(PoolConfig):
    """The verifier deployment."""

    service: VerifierConfig = VerifierConfig(model=Path("models/embedded/target"))


class IngressConfig(PoolConfig):
    """The HTTP ingress, which holds the orchestrator."""

    max_ongoing_requests: int = Field(64, ge=1)
    max_queued_requests: int = Field(128, ge=0)


class ForedraftConfig(StrictModel):
    """What `deployments.app:build` takes as its arguments."""

    # What clients call the model; by default its folder's name.
    model_name: str | None = None
    # The folder of the tokenizer.json that texts are read with; by default the target's own.
    tokenizer: str | None = None
    orchestrator: OrchestratorConfig = OrchestratorConfig()
    ingress: IngressConfig = IngressConfig()
    drafter: DrafterPool = DrafterPool()
    verifier: VerifierPool = VerifierPool()

    @property
    def name(self) -> str:
        """What clients call the model."""
        return self.model_name or located(self.verifier.service).model.name

    @property
    def tokenizer_file(self) -> Path:
        """The tokenizer.json that texts are read with; raise ConfigError if there is none."""
        target = located(self.verifier.service).model
        folder = target if self.tokenizer is None else ROOT / self.tokenizer
        found = tokenizer_file(folder)
        if found is None:
            raise ConfigError(f"tokenizer: {folder} has no tokenizer.json", param="tokenizer")
        return found


class HttpOptions(StrictModel):
    """Where Serve's HTTP proxy listens."""

    host: str = "127.0.0.1"
    port: int = Field(8000, ge=1, le=65535)


class ApplicationEntry(StrictModel):
    """The one application of the file."""

    name: str = "foredraft"
    route_prefix: str = "/"
    import_path: Literal["deployments.app:build"] = IMPORT_PATH
    args: ForedraftConfig = ForedraftConfig()


class ServeFile(StrictModel):
    """A Ray Serve config file that holds Foredraft and nothing unknown."""

    proxy_location: Literal["HeadOnly", "EveryNode"] = "HeadOnly"
    http_options: HttpOptions = HttpOptions()
    applications: list[ApplicationEntry] = Field(min_length=1, max_length=1)

    @property
    def application(self) -> ApplicationEntry:
        """The application entry."""
        return self.applications[0]


def read(path: Path) -> ServeFile:
    """Return the file's configuration; raise ConfigError naming the first bad key or value."""
    try:
        values: Any = yaml.safe_load(path.read_text())
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}", param="config") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not YAML: {error}", param="config") from None
    return parse(ServeFile, values)


def model_path(path: str | Path) -> str:
    """Return a model folder's absolute path; a relative one is relative to the project's root."""
    return str(ROOT / path)


def located(service: S) -> S:
    """Return a service's configuration with its folders and files where model_path says."""
    names = {"model", "tokenizer", "target", "target_tokenizer"} & type(service).model_fields.keys()
    found = {name: getattr(service, name) for name in names}
    places: dict[str, Any] = {name: ROOT / path for name, path in found.items() if path}
    if isinstance(service, VerifierConfig) and service.features is not None:
        places["features"] = FeaturesConfig(model=ROOT / service.features.model)
    return service.model_copy(update=places)
