"""The composition root: the only place that binds deployments together.

    client -> ingress (HTTP, orchestrator) ==gRPC==> drafter replicas
                                           ==gRPC==> verifier replicas
                                           ==gRPC==> denoiser replicas, where a second target is one

Serve places, scales, watches and drains the replicas; a session's rounds go straight to them.
"""

from __future__ import annotations

from typing import Any

from ray import serve
from ray.serve import Application

from deployments.config import ForedraftConfig, located
from deployments.ingress.openai.app import Ingress
from deployments.serve import parts
from deployments.serve.environment import check_environment
from deployments.serve.replica import ModelServiceReplica
from foredraft.strict import parse


def build(args: dict[str, Any]) -> Application:
    """Return the application of a configuration; raise ConfigError naming a bad key or value."""
    check_environment()
    options = parts.deployment_options(located(parse(ForedraftConfig, args)))

    def service(name: str, package: str) -> Application:
        replica: Any = serve.deployment(ModelServiceReplica)
        bound: Application = replica.options(name=name, **options[name]).bind(package)
        return bound

    second = service(parts.DENOISER, "denoiser_service") if parts.DENOISER in options else None
    ingress: Any = serve.deployment(Ingress)
    whole: Application = ingress.options(name=parts.INGRESS, **options[parts.INGRESS]).bind(
        drafters=service(parts.DRAFTER, "drafter_service"),
        canaries=service(parts.CANARY, "drafter_service"),
        verifiers=service(parts.VERIFIER, "verifier_service"),
        denoisers=second,
    )
    return whole


def __getattr__(name: str) -> Any:
    """Return the default configuration's application as `app`: `serve build` takes no builder."""
    if name == "app":
        return build({})
    raise AttributeError(name)
