"""The one configuration tree. Read once at the edge, strict, passed down in small pieces.

The file is a Ray Serve config, so that `serve run` and `serve deploy` take it as it is. Serve
itself accepts unknown keys silently; `foredraft serve` reads it through `ServeFile`, which does
not. A relative path is looked for beside the file, then among the files that come with Foredraft.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field

from deployments.paths import M, with_absolute_paths
from drafter_service.config import DrafterConfig
from foredraft.errors import ConfigError
from foredraft.strict import StrictModel, parse
from orchestrator.config import OrchestratorConfig
from verifier_service.config import VerifierConfig

ROOT = Path(__file__).resolve().parent.parent
# What comes with Foredraft: models/, which a checkout links to and an installation has a copy of.
DATA = ROOT / "foredraft_data"
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

    model_name: str = "foredraft-embedded"
    tokenizer: Path = Path("models/embedded/tokenizer")
    orchestrator: OrchestratorConfig = OrchestratorConfig()
    ingress: IngressConfig = IngressConfig()
    drafter: DrafterPool = DrafterPool()
    verifier: VerifierPool = VerifierPool()


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
    placed = with_absolute_paths(entry.args, (path.absolute().parent, DATA))
    return file.model_copy(update={"applications": [entry.model_copy(update={"args": placed})]})


def located(config: M) -> M:
    """Return a configuration that was read from no file with its paths absolute."""
    return with_absolute_paths(config, (DATA,))


def model_path(path: str | Path) -> str:
    """Return the absolute path of a folder or file that comes with Foredraft."""
    return str(DATA / path)
