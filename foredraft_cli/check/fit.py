"""Whether what replicas reserve fits a cluster's nodes: first fit, the largest first. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from deployments.config import ForedraftConfig, PoolConfig, ScaledPoolConfig
from foredraft_cli.check.fault import Fault


class Resources(NamedTuple):
    """CPUs and GPUs of a node, or what is reserved of them."""

    cpus: float
    gpus: float


class Reserved(NamedTuple):
    """A pool's reservations: the key that it stands under, and each bundle of each replica."""

    path: str
    bundles: tuple[Resources, ...]


def reserved(config: ForedraftConfig) -> list[Reserved]:
    """Return what all replicas reserve, where pools are scaled at their most."""
    ranks = config.verifier.service.tensor_parallel
    return [
        _pool("ingress", config.ingress, config.ingress.num_replicas),
        _pool("drafter", config.drafter, _most(config.drafter)),
        _pool("verifier", config.verifier, _most(config.verifier) * ranks),
    ]


def misfits(pools: Sequence[Reserved], nodes: Sequence[Resources]) -> Iterator[Fault]:
    """Yield a fault for each pool that has no place behind those before it."""
    free = list(nodes)
    # What needs GPUs has the fewest places.
    for pool in sorted(pools, key=lambda one: max(one.bundles), reverse=True):
        for number, bundle in enumerate(pool.bundles):
            place = next((i for i, node in enumerate(free) if _fits(bundle, node)), None)
            if place is None:
                told = f"{len(pool.bundles)} x {_said(bundle)} are reserved, {number} have a place"
                yield Fault(pool.path, f"{told} on {_listed(nodes)}")
                break
            free[place] = Resources(free[place].cpus - bundle.cpus, free[place].gpus - bundle.gpus)


def _pool(path: str, pool: PoolConfig, count: int) -> Reserved:
    return Reserved(path, (Resources(pool.num_cpus, pool.num_gpus),) * count)


def _most(pool: ScaledPoolConfig) -> int:
    return pool.num_replicas if pool.autoscaling is None else pool.autoscaling.max_replicas


def _fits(bundle: Resources, node: Resources) -> bool:
    # Sums of tenths are not exact.
    return bundle.cpus <= node.cpus + 1e-6 and bundle.gpus <= node.gpus + 1e-6


def _said(bundle: Resources) -> str:
    return f"{bundle.cpus:g} CPUs and {bundle.gpus:g} GPUs"


def _listed(nodes: Sequence[Resources]) -> str:
    kinds = sorted(set(nodes), reverse=True)
    if not kinds:
        return "no nodes"
    return ", ".join(f"{nodes.count(kind)} nodes of {_said(kind)}" for kind in kinds)
