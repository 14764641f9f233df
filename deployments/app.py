"""The composition root: the only place that binds deployments together.

    client -> ingress (HTTP, orchestrator) ==gRPC==> drafter replicas
                                           ==gRPC==> verifier replicas

Serve places, scales, watches and drains the replicas; a session's rounds go straight to them.
"""

from __future__ import annotations

from typing import Any

from ray import serve
from ray.serve import Application

from deployments.config import ForedraftConfig, PoolConfig, ScaledPoolConfig, located
from deployments.ingress.openai.app import Ingress
from deployments.serve.platform import check_environment
from deployments.serve.replica import ModelServiceReplica
from foredraft.strict import parse

# Over which Serve keeps what replicas report.
_LOOK_BACK_S = 10.0


def build(args: dict[str, Any]) -> Application:
    """Return the application of a configuration; raise ConfigError naming a bad key or value."""
    check_environment()
    config = located(parse(ForedraftConfig, args))
    ingress: Any = serve.deployment(Ingress)
    bound: Application = ingress.options(
        name="ingress",
        max_ongoing_requests=config.ingress.max_ongoing_requests,
        max_queued_requests=config.ingress.max_queued_requests,
        **_pool(config.ingress),
    ).bind(
        config,
        drafters=_model_service("drafter", config.drafter, config.drafter.service, config),
        verifiers=_model_service(
            "verifier",
            config.verifier,
            config.verifier.service,
            config,
            config.verifier.service.tensor_parallel,
        ),
    )
    return bound


def __getattr__(name: str) -> Any:
    """Return the default configuration's application as `app`: `serve build` takes no builder."""
    if name == "app":
        return build({})
    raise AttributeError(name)


def _model_service(
    name: str, pool: ScaledPoolConfig, service: Any, config: ForedraftConfig, ranks: int = 1
) -> Application:
    replica: Any = serve.deployment(ModelServiceReplica)
    options = _pool(pool) | _scaled(pool)
    if ranks > 1:
        # One scheduling unit: the replica, rank 0, has the first bundle, and each rank another.
        bundle = {"CPU": pool.num_cpus, "GPU": pool.num_gpus}
        options["placement_group_bundles"] = [bundle] * ranks
        options["placement_group_strategy"] = "PACK"
        if pool.node_labels:
            options["placement_group_bundle_label_selector"] = [pool.node_labels]
    bound: Application = replica.options(name=name, **options).bind(
        f"{name}_service",
        service.model_copy(update={"mtls": config.mtls}),
        pool.pin_cpus,
        pool.drain_s,
        config.tensors,
        config.drafter.link,
    )
    return bound


def _pool(pool: PoolConfig) -> dict[str, Any]:
    actor: dict[str, Any] = {"num_cpus": pool.num_cpus, "num_gpus": pool.num_gpus}
    if pool.node_labels:
        actor["label_selector"] = pool.node_labels
    return {
        "num_replicas": pool.num_replicas,
        "ray_actor_options": actor,
        "graceful_shutdown_timeout_s": pool.drain_s + 1,
        "graceful_shutdown_wait_loop_s": 0.1,
    }


def _scaled(pool: ScaledPoolConfig) -> dict[str, Any]:
    if (bounds := pool.autoscaling) is None:
        return {}
    # The policy holds its wishes itself: Serve's own delays begin anew with each call.
    return {
        "num_replicas": None,
        "autoscaling_config": {
            "min_replicas": bounds.min_replicas,
            "max_replicas": bounds.max_replicas,
            "initial_replicas": bounds.initial,
            "look_back_period_s": _LOOK_BACK_S,
            "upscale_delay_s": 0.0,
            "downscale_delay_s": 0.0,
            "downscale_to_zero_delay_s": 0.0,
        },
    }
