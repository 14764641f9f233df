"""Faults of a file for `ray up`, and the nodes that it makes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from jsonschema import Draft7Validator

from foredraft.errors import ConfigError
from foredraft_cli.check.fault import Fault
from foredraft_cli.check.fit import Node, Resources


def faults(values: Any) -> list[Fault]:
    """Return all faults of a file, by the schema of the installed Ray and by what it leaves out."""
    found = [
        Fault(".".join(map(str, error.absolute_path)), error.message)
        for error in sorted(_validator().iter_errors(values), key=lambda error: error.json_path)
    ]
    return found or [*_started(values), *_types(values)]


def nodes(values: Any) -> list[Node] | None:
    """Return the nodes at their most, None where the file does not say what they have."""
    types: Mapping[str, Any] = values.get("available_node_types") or {}
    head = values.get("head_node_type")
    found: list[Node] = []
    for name, each in types.items():
        resources = each.get("resources")
        if not resources:
            return None
        one = Resources(float(resources.get("CPU", 0)), float(resources.get("GPU", 0)))
        count = int(each.get("max_workers", 0)) + (name == head)
        found += [Node(one, each.get("labels") or {})] * count
    return found or None


def _started(values: Mapping[str, Any]) -> Iterator[Fault]:
    for key, wanted in (
        ("head_start_ray_commands", "ray start --head"),
        ("worker_start_ray_commands", "ray start --address"),
    ):
        commands = values.get(key)
        if commands is not None and not any(wanted in command for command in commands):
            yield Fault(key, f"no command has {wanted!r}")


def _types(values: Mapping[str, Any]) -> Iterator[Fault]:
    types: Mapping[str, Any] = values.get("available_node_types") or {}
    local = values["provider"].get("type") == "local"
    if local and types:
        yield Fault(
            "available_node_types", "the provider local has fixed nodes: head_ip, worker_ips"
        )
    if local and not values["provider"].get("head_ip"):
        yield Fault("provider.head_ip", "missing")
    if local:
        return
    head = values.get("head_node_type")
    if head not in types:
        yield Fault("head_node_type", f"{head!r} is none of available_node_types")
    most = sum(int(each.get("max_workers", 0)) for each in types.values())
    if "max_workers" in values and most and values["max_workers"] < most:
        message = f"{values['max_workers']} nodes at most, and the types have {most}"
        yield Fault("max_workers", message)
    for name, each in types.items():
        if each.get("min_workers", 0) > each.get("max_workers", 0):
            path = f"available_node_types.{name}.min_workers"
            yield Fault(path, f"{each['min_workers']} is above max_workers")


@cache
def _validator() -> Draft7Validator:
    ray = find_spec("ray")
    if ray is None or ray.origin is None:
        raise ConfigError("Ray is not installed: its schema of cluster files is needed")
    schema = Path(ray.origin).parent / "autoscaler" / "ray-schema.json"
    return Draft7Validator(json.loads(schema.read_text()))
