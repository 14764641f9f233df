"""Faults of one RayCluster or RayService."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from foredraft.errors import ConfigError
from foredraft_cli.check import serve_file
from foredraft_cli.check.fault import Fault, schema_faults
from foredraft_cli.check.fit import Node
from foredraft_cli.check.kuberay import pods, rules
from foredraft_cli.check.kuberay.fields import Group, RayClusterSpec, RayServiceSpec
from foredraft_cli.check.reading import parsed

API, KINDS = "ray.io/v1", frozenset({"RayCluster", "RayService"})


def faults(values: Mapping[str, Any], folder: Path) -> list[Fault]:
    """Return all faults of an object; a file that a RayService serves is in the folder."""
    if values.get("apiVersion") != API:
        return [Fault("apiVersion", f"{values.get('apiVersion')!r} is not {API}")]
    kind = values["kind"]
    found = [*rules.name_faults(kind, values.get("metadata"))]
    try:
        found += (fault.below("spec") for fault in _spec(kind, values.get("spec"), folder))
    except ValidationError as error:
        found += (fault.below("spec") for fault in schema_faults(error))
    return found


def nodes(values: Mapping[str, Any]) -> list[Node] | None:
    """Return a RayCluster's nodes at their most, None where that is not known."""
    try:
        return pods.nodes(RayClusterSpec.model_validate(values.get("spec")))
    except ValidationError:
        return None


def _spec(kind: str, spec: Any, folder: Path) -> Iterator[Fault]:
    if kind == "RayCluster":
        yield from _cluster(RayClusterSpec.model_validate(spec))
        return
    service = RayServiceSpec.model_validate(spec)
    yield from rules.service_faults(service)
    cluster = service.ray_cluster_config
    yield from (fault.below("rayClusterConfig") for fault in _cluster(cluster))
    yield from (fault.below("serveConfigV2") for fault in _served(service, folder))


def _cluster(cluster: RayClusterSpec) -> Iterator[Fault]:
    yield from rules.cluster_faults(cluster)
    groups: list[tuple[str, Group]] = [("headGroupSpec", cluster.head_group_spec)]
    groups += [
        (f"workerGroupSpecs.{at}", each) for at, each in enumerate(cluster.worker_group_specs)
    ]
    for path, group in groups:
        found = pods.pod_faults(group, cluster.ray_version, cluster.enable_in_tree_autoscaling)
        yield from (fault.below(path) for fault in found)


def _served(service: RayServiceSpec, folder: Path) -> Iterator[Fault]:
    cluster = service.ray_cluster_config
    try:
        [values] = parsed(service.serve_config_v2)
    except (ConfigError, ValueError) as error:
        yield Fault("", str(error))
        return
    yield from serve_file.faults(values, folder, pods.nodes(cluster))
    http = values.get("http_options") if isinstance(values, dict) else None
    if not isinstance(http, dict):
        http = {}
    host, port = http.get("host", "127.0.0.1"), http.get("port", 8000)
    if _is_loopback(host):
        yield Fault("http_options.host", f"{host}: other pods, and Kubernetes, do not reach it")
    if port not in (ports := pods.serve_ports(cluster)):
        message = f"{port} is not the port that pods name `serve`: {sorted(ports)}"
        yield Fault("http_options.port", message)


def _is_loopback(host: Any) -> bool:
    try:
        return bool(ip_address(str(host)).is_loopback)
    except ValueError:
        return bool(host == "localhost")
