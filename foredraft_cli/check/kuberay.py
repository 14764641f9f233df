"""Faults of KubeRay's RayCluster and RayService, as far as Foredraft depends on them, and their
nodes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from foredraft.errors import ConfigError
from foredraft_cli.check import serve_file
from foredraft_cli.check.fault import Fault
from foredraft_cli.check.fit import Resources
from foredraft_cli.check.reading import parsed

API, KINDS = "ray.io/v1", frozenset({"RayCluster", "RayService"})

_SPEC = {
    "RayCluster": frozenset(
        {
            "authOptions",
            "autoscalerOptions",
            "enableInTreeAutoscaling",
            "gcsFaultToleranceOptions",
            "headGroupSpec",
            "headServiceAnnotations",
            "idleTimeoutSeconds",
            "managedBy",
            "networkPolicy",
            "rayVersion",
            "suspend",
            "tlsOptions",
            "upgradeStrategy",
            "workerGroupSpecs",
        }
    ),
    "RayService": frozenset(
        {
            "excludeHeadPodFromServeSvc",
            "managedBy",
            "rayClusterConfig",
            "rayClusterDeletionDelaySeconds",
            "serveConfigV2",
            "serveService",
            "suspend",
            "upgradeStrategy",
        }
    ),
}
_GPU = "nvidia.com/gpu"
_UNITS = {"m": 1e-3, "": 1.0}
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)(m?)")


def faults(values: Mapping[str, Any], folder: Path) -> list[Fault]:
    """Return all faults of one object."""
    spec = values.get("spec")
    if values.get("apiVersion") != API:
        return [Fault("apiVersion", f"{values.get('apiVersion')!r} is not {API}")]
    if not isinstance(spec, dict):
        return [Fault("spec", "missing")]
    kind = values["kind"]
    found = [Fault(f"spec.{key}", "unknown key") for key in spec if key not in _SPEC[kind]]
    if kind == "RayCluster":
        return found + [fault.below("spec") for fault in _cluster(spec)]
    cluster = spec.get("rayClusterConfig")
    if not isinstance(cluster, dict):
        return [*found, Fault("spec.rayClusterConfig", "missing")]
    path = "spec.rayClusterConfig"
    unknown = (key for key in cluster if key not in _SPEC["RayCluster"])
    found += (Fault(f"{path}.{key}", "unknown key") for key in unknown)
    found += (fault.below(path) for fault in _cluster(cluster))
    return [*found, *_served(spec, folder, nodes(cluster))]


def nodes(cluster: Mapping[str, Any]) -> list[Resources] | None:
    """Return a RayCluster's nodes at their most, None where a container has no resources."""
    groups = [(cluster.get("headGroupSpec") or {}, 1)]
    groups += [
        (group, int(group.get("maxReplicas", group.get("replicas", 1))))
        for group in cluster.get("workerGroupSpecs") or ()
    ]
    found: list[Resources] = []
    for group, count in groups:
        one = _resources(group)
        if one is None:
            return None
        found += [one] * count
    return found


def _served(
    spec: Mapping[str, Any], folder: Path, nodes: Sequence[Resources] | None
) -> Iterator[Fault]:
    path, text = "spec.serveConfigV2", spec.get("serveConfigV2")
    if not isinstance(text, str):
        yield Fault(path, "missing, or no text")
        return
    try:
        [values] = parsed(text)
    except (ConfigError, ValueError) as error:
        yield Fault(path, str(error))
        return
    for fault in serve_file.faults(values, folder, nodes):
        yield fault.below(path)


def _cluster(cluster: Mapping[str, Any]) -> Iterator[Fault]:
    version = str(cluster.get("rayVersion", ""))
    if not version:
        yield Fault("rayVersion", "missing")
    names: set[str] = set()
    groups = [("headGroupSpec", cluster.get("headGroupSpec"))]
    groups += [
        (f"workerGroupSpecs.{at}", group)
        for at, group in enumerate(cluster.get("workerGroupSpecs") or ())
    ]
    for path, group in groups:
        if not isinstance(group, dict):
            yield Fault(path, "missing")
            continue
        if path != "headGroupSpec":
            name = str(group.get("groupName", ""))
            if not name or name in names:
                yield Fault(f"{path}.groupName", f"{name!r} is missing, or another group's")
            names.add(name)
            if group.get("minReplicas", 0) > group.get("maxReplicas", group.get("replicas", 1)):
                yield Fault(f"{path}.minReplicas", "above maxReplicas")
        yield from (fault.below(path) for fault in _pod(group, version))


def _pod(group: Mapping[str, Any], version: str) -> Iterator[Fault]:
    path = "template.spec.containers"
    containers = _containers(group)
    if not containers:
        yield Fault(path, "missing")
        return
    image = str(containers[0].get("image", ""))
    tag = image.rpartition(":")[2] if ":" in image.rpartition("/")[2] else ""
    if tag in ("", "latest"):
        yield Fault(f"{path}.0.image", f"{image!r} has no fixed tag")
    elif "rayproject/" in image and version and not tag.startswith(version):
        yield Fault(f"{path}.0.image", f"{image} is not of rayVersion {version}")
    if _resources(group) is None:
        yield Fault(f"{path}.0.resources", "no CPU limit: Ray would take the whole machine's")


def _containers(group: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found = ((group.get("template") or {}).get("spec") or {}).get("containers")
    return list(found) if isinstance(found, list) else []


def _resources(group: Mapping[str, Any]) -> Resources | None:
    """Return what Ray sees of a pod: rayStartParams before its container's limits."""
    start = group.get("rayStartParams") or {}
    containers = _containers(group)
    resources = (containers[0].get("resources") or {}) if containers else {}
    limits = resources.get("limits") or resources.get("requests") or {}
    cpus, gpus = start.get("num-cpus", limits.get("cpu")), limits.get(_GPU, 0)
    if cpus is None:
        return None
    return Resources(_quantity(cpus), _quantity(start.get("num-gpus", gpus)))


def _quantity(value: Any) -> float:
    found = _QUANTITY.fullmatch(str(value))
    return float(found[1]) * _UNITS[found[2]] if found else 0.0
