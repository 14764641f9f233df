"""Faults of pod templates, as far as Ray and Foredraft depend on them, and the nodes they make.

The first container is Ray's. The keys are those of Kubernetes 1.28 and later.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from foredraft_cli.check.fault import Fault
from foredraft_cli.check.fit import Node, Resources
from foredraft_cli.check.kuberay.fields import Group, RayClusterSpec

_TEMPLATE = frozenset({"metadata", "spec"})
_POD_KEYS = """
activeDeadlineSeconds affinity automountServiceAccountToken containers dnsConfig dnsPolicy
enableServiceLinks hostAliases hostIPC hostNetwork hostPID hostUsers hostname imagePullSecrets
initContainers nodeName nodeSelector os overhead preemptionPolicy priority priorityClassName
readinessGates resourceClaims resources restartPolicy runtimeClassName schedulerName schedulingGates
securityContext serviceAccount serviceAccountName setHostnameAsFQDN shareProcessNamespace subdomain
terminationGracePeriodSeconds tolerations topologySpreadConstraints volumes
"""
_CONTAINER_KEYS = """
args command env envFrom image imagePullPolicy lifecycle livenessProbe name ports readinessProbe
resizePolicy resources restartPolicy securityContext startupProbe stdin stdinOnce
terminationMessagePath terminationMessagePolicy tty volumeDevices volumeMounts workingDir
"""
_POD, _CONTAINER = frozenset(_POD_KEYS.split()), frozenset(_CONTAINER_KEYS.split())
_GPU = "nvidia.com/gpu"
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)(m?)")
_UNITS = {"m": 1e-3, "": 1.0}


def pod_faults(group: Group, ray_version: str, autoscaling: bool) -> Iterator[Fault]:
    """Yield what is wrong with a group's pods."""
    yield from (fault.below("template") for fault in _template(group, ray_version, autoscaling))


def nodes(cluster: RayClusterSpec) -> list[Node] | None:
    """Return a cluster's nodes at their most, None where a container has no resources."""
    groups: list[tuple[Group, int]] = [(cluster.head_group_spec, 1)]
    groups += [(group, group.max_replicas) for group in cluster.worker_group_specs]
    found: list[Node] = []
    for group, count in groups:
        one = _resources(group)
        if one is None:
            return None
        # More than a thousand are as good as any number, and take no memory.
        found += [Node(one, group.labels)] * min(count, 1000)
    return found


def serve_ports(cluster: RayClusterSpec) -> set[int]:
    """Return the ports that pods name `serve`; 8000 where none does."""
    groups = [cluster.head_group_spec, *cluster.worker_group_specs]
    ports = [port for group in groups for each in _containers(group) for port in _ports(each)]
    return {port["containerPort"] for port in ports if port.get("name") == "serve"} or {8000}


def _template(group: Group, ray_version: str, autoscaling: bool) -> Iterator[Fault]:
    spec = group.template.get("spec")
    yield from _unknown(group.template, _TEMPLATE, "")
    if not isinstance(spec, dict):
        yield Fault("spec", "missing")
        return
    yield from _unknown(spec, _POD, "spec.")
    if autoscaling and spec.get("restartPolicy", "Never") != "Never":
        yield Fault("spec.restartPolicy", "Ray's autoscaler needs Never")
    containers = _containers(group)
    if not containers:
        yield Fault("spec.containers", "missing")
        return
    volumes = {each.get("name") for each in _objects(spec.get("volumes"))}
    for at, container in enumerate(containers):
        path = f"spec.containers.{at}"
        yield from (fault.below(path) for fault in _container(container, volumes))
    path = "spec.containers.0"
    yield from (fault.below(path) for fault in _image(containers[0], ray_version))
    if _resources(group) is None:
        message = "no CPU limit: Ray would take the whole machine's"
        yield Fault(f"{path}.resources", message)


def _container(container: Mapping[str, Any], volumes: set[Any]) -> Iterator[Fault]:
    yield from _unknown(container, _CONTAINER, "")
    for at, mount in enumerate(_objects(container.get("volumeMounts"))):
        if mount.get("name") not in volumes:
            yield Fault(f"volumeMounts.{at}.name", f"{mount.get('name')!r} is no volume")
    for key, name in (("ports", "containerPort"), ("ports", "name"), ("env", "name")):
        values = [each.get(name) for each in _objects(container.get(key))]
        for at, value in enumerate(values):
            if value is not None and value in values[:at]:
                yield Fault(f"{key}.{at}.{name}", f"{value} stands twice")
    requests, limits = (_of(container, "resources", each) for each in ("requests", "limits"))
    for name in sorted(requests.keys() & limits.keys()):
        path, asked, most = f"resources.requests.{name}", requests[name], limits[name]
        if name == _GPU and str(asked) != str(most):
            yield Fault(path, f"{asked} is not the limit, {most}")
        elif name == "cpu" and (_quantity(asked) or 0) > (_quantity(most) or 0):
            yield Fault(path, f"{asked} is above the limit, {most}")


def _image(container: Mapping[str, Any], ray_version: str) -> Iterator[Fault]:
    image = str(container.get("image", ""))
    tag = image.rpartition(":")[2] if ":" in image.rpartition("/")[2] else ""
    if tag in ("", "latest"):
        yield Fault("image", f"{image!r} has no fixed tag")
    elif "rayproject/" in image and not tag.startswith(ray_version):
        yield Fault("image", f"{image} is not of rayVersion {ray_version}")


def _unknown(values: Mapping[str, Any], known: Iterable[str], path: str) -> Iterator[Fault]:
    yield from (Fault(f"{path}{key}", "unknown key") for key in values if key not in known)


def _containers(group: Group) -> list[Mapping[str, Any]]:
    return _objects(_of(group.template, "spec").get("containers"))


def _ports(container: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return _objects(container.get("ports"))


def _objects(values: Any) -> list[Mapping[str, Any]]:
    return [each for each in values if isinstance(each, dict)] if isinstance(values, list) else []


def _of(values: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    for key in keys:
        found = values.get(key)
        if not isinstance(found, dict):
            return {}
        values = found
    return values


def _resources(group: Group) -> Resources | None:
    """Return what Ray sees of a pod: what Ray itself is given before its container's limits."""
    containers: Sequence[Mapping[str, Any]] = _containers(group)
    first = containers[0] if containers else {}
    limits = _of(first, "resources", "limits") or _of(first, "resources", "requests")
    start, declared = group.ray_start_params, group.resources
    cpus = _quantity(start.get("num-cpus", declared.get("CPU", limits.get("cpu"))))
    gpus = _quantity(start.get("num-gpus", declared.get("GPU", limits.get(_GPU, 0))))
    return None if cpus is None else Resources(cpus, gpus or 0.0)


def _quantity(value: Any) -> float | None:
    found = None if value is None else _QUANTITY.fullmatch(str(value))
    return float(found[1]) * _UNITS[found[2]] if found else None
