"""The deployments of a configuration as Ray Serve has them: their options, and what each is given.

All that a process is given is its deployment's `user_config`. What it is started with has a digest,
its revision, which is in its environment: Serve replaces replicas whose revision has changed, one
after the other, and hands every other change to those that run (`reconfigure`). A changed number of
replicas changes nothing else.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from denoiser_service.config import DenoiserConfig
from deployments.config import ForedraftConfig
from deployments.denoiser_pool import DenoiserPool
from deployments.pools import PoolConfig, ScaledPoolConfig, TensorConfig
from drafter_service.config import DrafterConfig
from foredraft.rpc.config import LinkConfig
from foredraft.strict import StrictModel
from verifier_service.config import VerifierConfig

INGRESS, DRAFTER, CANARY, VERIFIER = "ingress", "drafter", "canary", "verifier"
DENOISER = "denoiser"

# An ingress that another one takes over from ends its connections once so long nothing was asked on
# them, in seconds.
QUIET_S = 1.0
# What a replica's end may take beyond its grace period, in seconds.
_END_S = 3.0
# Over which Serve keeps what replicas report, in seconds; more than its 10 s between two reports,
# which prepare_environment makes 2.
_LOOK_BACK_S = 11.0
_REVISION = "FOREDRAFT_REVISION"
# What an ingress takes over while it runs; numbers and places of replicas are Serve's.
_INGRESS_IN_PLACE = {
    "num_replicas",
    "num_cpus",
    "num_gpus",
    "node_labels",
    "surge_percent",
    "drain_s",
    "acceptance",
}


class ReplicaConfig(StrictModel):
    """What a service's replica is given beside its service's configuration."""

    pin_cpus: tuple[int, ...]
    drain_s: float
    tensors: TensorConfig
    link: LinkConfig


class DrafterReplica(ReplicaConfig):
    """What a drafter replica is given."""

    service: DrafterConfig


class VerifierReplica(ReplicaConfig):
    """What a verifier replica is given; link is that of the drafters, which it asks itself."""

    service: VerifierConfig


class DenoiserReplica(ReplicaConfig):
    """What a denoiser replica is given."""

    service: DenoiserConfig


def deployment_options(config: ForedraftConfig) -> dict[str, dict[str, Any]]:
    """Return Serve's options of each deployment, by name; the configuration's paths are absolute.

    They are plain values: `deployments` of a Serve file takes them, too.
    """
    return {
        INGRESS: {
            "max_ongoing_requests": config.ingress.max_ongoing_requests,
            "max_queued_requests": config.ingress.max_queued_requests,
            "user_config": config.model_dump(mode="json"),
            **_pool(config.ingress, _ingress_revision(config)),
        },
        DRAFTER: _drafters(config, config.drafter.service, config.drafter),
        CANARY: _canaries(config),
        VERIFIER: _verifiers(config),
        **({} if config.denoiser is None else {DENOISER: _denoisers(config, config.denoiser)}),
    }


def _drafters(
    config: ForedraftConfig, service: DrafterConfig, pool: ScaledPoolConfig
) -> dict[str, Any]:
    service = service.model_copy(update={"mtls": config.mtls})
    given = DrafterReplica(service=service, **_given(config, pool))
    return _service(given, pool)


def _canaries(config: ForedraftConfig) -> dict[str, Any]:
    """Return the options of the canary's deployment, which is always there: without one, empty."""
    pool = config.drafter
    if (canary := pool.canary) is None:
        return {"user_config": {}, **_pool(pool, ""), **between(0, 1, 0)}
    number = canary.num_replicas
    return _drafters(config, canary.service, pool) | between(number, number, number)


def _verifiers(config: ForedraftConfig) -> dict[str, Any]:
    pool = config.verifier
    service = pool.service.model_copy(update={"mtls": config.mtls})
    given = VerifierReplica(service=service, **_given(config, pool))
    options = _service(given, pool)
    if (ranks := pool.service.tensor_parallel) > 1:
        # One scheduling unit: the replica, rank 0, has the first bundle, and each rank another.
        bundle = {"CPU": pool.num_cpus, "GPU": pool.num_gpus}
        options["placement_group_bundles"] = [bundle] * ranks
        options["placement_group_strategy"] = "PACK"
        if pool.node_labels:
            options["placement_group_bundle_label_selector"] = [pool.node_labels]
    return options


def _denoisers(config: ForedraftConfig, pool: DenoiserPool) -> dict[str, Any]:
    service = pool.service.model_copy(update={"mtls": config.mtls})
    given = DenoiserReplica(service=service, **_given(config, pool))
    values = given.model_dump(mode="json")
    return {"user_config": values, **_pool(pool, _revision(values))}


def _given(config: ForedraftConfig, pool: PoolConfig) -> dict[str, Any]:
    return {
        "pin_cpus": pool.pin_cpus,
        "drain_s": pool.drain_s,
        "tensors": config.tensors,
        "link": config.drafter.link,
    }


def _service(given: ReplicaConfig, pool: ScaledPoolConfig) -> dict[str, Any]:
    values = given.model_dump(mode="json")
    return {"user_config": values, **_pool(pool, _revision(values)), **_scaled(pool)}


def _revision(values: dict[str, Any]) -> str:
    """Return the digest of what a replica reads once."""
    return _digest({key: value for key, value in values.items() if key != "drain_s"})


def _ingress_revision(config: ForedraftConfig) -> str:
    """Return the digest of what an ingress reads once, its target and its links included."""
    return _digest(
        {
            "model_name": config.name,
            "tokenizer": str(config.tokenizer),
            "target": str(config.verifier.service.model),
            "mtls": str(config.mtls),
            "tokens": [str(pool.service.token_file) for pool in (config.drafter, config.verifier)],
            "links": [
                pool.link.model_dump(mode="json") for pool in (config.drafter, config.verifier)
            ],
            "ingress": config.ingress.model_dump(mode="json", exclude=_INGRESS_IN_PLACE),
            **_denoiser_revision(config.denoiser),
        }
    )


def _denoiser_revision(pool: DenoiserPool | None) -> dict[str, Any]:
    """Return what an ingress reads once of its second target: nothing where there is none."""
    if pool is None:
        return {}
    read = set(DenoiserPool.model_fields) - set(PoolConfig.model_fields)
    return {"denoiser": pool.model_dump(mode="json", include=read)}


def _digest(values: Any) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


def _pool(pool: PoolConfig, revision: str) -> dict[str, Any]:
    actor: dict[str, Any] = {
        "num_cpus": pool.num_cpus,
        "num_gpus": pool.num_gpus,
        "runtime_env": {"env_vars": {_REVISION: revision}},
    }
    if pool.node_labels:
        actor["label_selector"] = pool.node_labels
    return {
        "num_replicas": pool.num_replicas,
        "ray_actor_options": actor,
        "max_surge_percent": pool.surge,
        "graceful_shutdown_timeout_s": pool.drain_s + QUIET_S + _END_S,
        "graceful_shutdown_wait_loop_s": 0.1,
    }


def _scaled(pool: ScaledPoolConfig) -> dict[str, Any]:
    if (bounds := pool.autoscaling) is None:
        return {}
    return between(bounds.min_replicas, bounds.max_replicas, bounds.initial)


def between(least: int, most: int, initial: int) -> dict[str, Any]:
    """Return the options of a deployment whose number of replicas a policy changes."""
    # The policy holds its wishes itself: Serve's own delays begin anew with each call.
    return {
        "num_replicas": None,
        "autoscaling_config": {
            "min_replicas": least,
            "max_replicas": most,
            "initial_replicas": initial,
            "look_back_period_s": _LOOK_BACK_S,
            "upscale_delay_s": 0.0,
            "downscale_delay_s": 0.0,
            "downscale_to_zero_delay_s": 0.0,
        },
    }
