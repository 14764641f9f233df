"""Whether what replicas reserve fits a cluster's nodes: first fit, the largest first. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from deployments.config import ForedraftConfig
from deployments.pools import PoolConfig, ScaledPoolConfig
from foredraft_cli.check.fault import Fault

# Labels that files do not have.
_PLATFORM = "ray.io/"


class Resources(NamedTuple):
    """CPUs and GPUs of a node, or what is reserved of them."""

    cpus: float
    gpus: float


class Node(NamedTuple):
    """A node: what it has, and its labels."""

    resources: Resources
    labels: Mapping[str, str] = {}


class Reserved(NamedTuple):
    """A pool's reservations: the key that it stands under, each bundle of each replica, and the
    labels that their nodes must have.
    """

    path: str
    bundles: tuple[Resources, ...]
    labels: Mapping[str, str] = {}


def reserved(config: ForedraftConfig) -> list[Reserved]:
    """Return what all replicas reserve, where pools are scaled at their most."""
    ranks = config.verifier.service.tensor_parallel
    canary = config.drafter.canary
    canaries = 0 if canary is None else canary.num_replicas
    return [
        _pool("ingress", config.ingress, config.ingress.num_replicas),
        _pool("drafter", config.drafter, _most(config.drafter)),
        _pool("drafter.canary", config.drafter, canaries),
        _pool("verifier", config.verifier, _most(config.verifier) * ranks),
    ]


def misfits(pools: Sequence[Reserved], nodes: Sequence[Node]) -> Iterator[Fault]:
    """Yield a fault for each pool that has no place behind those before it."""
    free = [node.resources for node in nodes]
    # What needs GPUs has the fewest places.
    reserving = [pool for pool in pools if pool.bundles]
    for pool in sorted(reserving, key=lambda one: max(one.bundles), reverse=True):
        allowed = [at for at, node in enumerate(nodes) if is_chosen(pool.labels, node.labels)]
        if not allowed:
            message = ", ".join(f"{key}: {value}" for key, value in pool.labels.items())
            yield Fault(f"{pool.path}.node_labels", f"no node has {message or 'a place'}")
            continue
        for number, bundle in enumerate(pool.bundles):
            place = next((at for at in allowed if _fits(bundle, free[at])), None)
            if place is None:
                wanted = f"{len(pool.bundles)} x {_resources(bundle)} are reserved"
                message = f"{wanted}, {number} have a place"
                yield Fault(pool.path, f"{message} on {_listed([nodes[at] for at in allowed])}")
                break
            left = free[place]
            free[place] = Resources(left.cpus - bundle.cpus, left.gpus - bundle.gpus)


def is_chosen(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Return whether a node's labels are those of a selector of Ray: `a`, `!a`, `in(a, b)` or
    `!in(a, b)`. What Ray and clouds label nodes with themselves, `ray.io/...`, is taken to be so.
    """
    return all(
        key.startswith(_PLATFORM) or _holds(wanted, labels.get(key))
        for key, wanted in selector.items()
    )


def _holds(wanted: str, found: str | None) -> bool:
    inner = wanted.removeprefix("!")
    listed = inner.removeprefix("in(").removesuffix(")") if inner.startswith("in(") else inner
    among = found in [each.strip() for each in listed.split(",")]
    return among != wanted.startswith("!")


def _pool(path: str, pool: PoolConfig, count: int) -> Reserved:
    bundles = (Resources(pool.num_cpus, pool.num_gpus),) * count
    return Reserved(path, bundles, pool.node_labels)


def _most(pool: ScaledPoolConfig) -> int:
    return pool.num_replicas if pool.autoscaling is None else pool.autoscaling.max_replicas


def _fits(bundle: Resources, node: Resources) -> bool:
    # Sums of tenths are not exact.
    return bundle.cpus <= node.cpus + 1e-6 and bundle.gpus <= node.gpus + 1e-6


def _resources(bundle: Resources) -> str:
    return f"{bundle.cpus:g} CPUs and {bundle.gpus:g} GPUs"


def _listed(nodes: Sequence[Node]) -> str:
    found = [node.resources for node in nodes]
    kinds = sorted(set(found), reverse=True)
    return ", ".join(f"{found.count(kind)} nodes of {_resources(kind)}" for kind in kinds)
