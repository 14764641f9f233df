"""Faults of a Ray Serve config file that holds Foredraft."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from deployments.config import DATA, ForedraftConfig, ServeFile
from deployments.paths import with_absolute_paths
from deployments.pools import PoolConfig
from deployments.preflight import check_models
from foredraft.errors import ConfigError
from foredraft.gguf.smollm2 import fetched_models
from foredraft_cli.check.fault import Fault, schema_faults
from foredraft_cli.check.fit import Node, misfits, reserved

_ARGS = "applications.0.args"
_EVERYWHERE = {"0.0.0.0", "::"}  # noqa: S104 - compared, not listened on


def faults(values: Any, folder: Path, nodes: Sequence[Node] | None) -> list[Fault]:
    """Return all faults of a file in a folder; nodes are the cluster's, None where not known.

    Models that are not on this machine are taken to be on the cluster's.
    """
    try:
        file = ServeFile.model_validate(values)
    except ValidationError as error:
        return schema_faults(error)
    config = file.application.args
    found = [*_ports(file)]
    found += (fault.below(_ARGS) for fault in (*_devices(config), *_models(config, folder)))
    if nodes is not None:
        found += (fault.below(_ARGS) for fault in misfits(reserved(config), nodes))
    return found


def _ports(file: ServeFile) -> Iterator[Fault]:
    ingress, http = file.application.args.ingress, file.http_options
    listens: list[tuple[str, str, int]] = []
    if file.proxy_location != "Disabled":
        listens.append(("http_options", http.host, http.port))
    if ingress.direct is not None:
        listens.append((f"{_ARGS}.ingress.direct", ingress.direct.host, ingress.direct.port))
    if ingress.grpc is not None:
        listens.append((f"{_ARGS}.ingress.grpc", ingress.grpc.host, ingress.grpc.port))
    for at, (path, host, port) in enumerate(listens):
        for other, other_host, other_port in listens[:at]:
            both = host == other_host or _EVERYWHERE & {host, other_host}
            if port and port == other_port and both:
                yield Fault(f"{path}.port", f"{port} is that of {other}, too")


def _devices(config: ForedraftConfig) -> Iterator[Fault]:
    drafter, verifier = config.drafter, config.verifier
    devices: list[tuple[str, str, PoolConfig, str]] = [
        ("drafter", "drafter.service", drafter, drafter.service.device),
        ("verifier", "verifier.service", verifier, str(verifier.service.device)),
    ]
    if drafter.canary is not None:
        canary = drafter.canary.service.device
        devices.append(("drafter", "drafter.canary.service", drafter, canary))
    for name, service, pool, device in devices:
        if device != "cpu" and not pool.num_gpus:
            yield Fault(f"{name}.num_gpus", f"0 GPUs are reserved, and its device is {device}")
        if device == "cpu" and pool.num_gpus:
            yield Fault(f"{service}.device", f"cpu, and {pool.num_gpus:g} GPUs are reserved")


def _models(config: ForedraftConfig, folder: Path) -> Iterator[Fault]:
    try:
        config = with_absolute_paths(config, (folder, DATA, fetched_models()))
    except ConfigError as error:
        yield Fault(error.param or "", str(error))
        return
    if config.mtls is not None and not config.mtls.is_dir():
        # The cluster's, as models are.
        config = config.model_copy(update={"mtls": None})
    target = config.verifier.service.model
    yield from _ranks(config, target)
    if target.is_dir() and config.drafter.service.model.is_dir():
        try:
            check_models(config)
        except ConfigError as error:
            yield Fault(error.param or "", str(error))


def _ranks(config: ForedraftConfig, target: Path) -> Iterator[Fault]:
    """Yield a fault where the heads of a target cannot be shared by its ranks."""
    ranks, path = config.verifier.service.tensor_parallel, target / "config.json"
    if ranks == 1 or not path.is_file():
        return
    try:
        raw = json.loads(path.read_text())
    except ValueError as error:
        yield Fault("verifier.service.model", f"{path} is no JSON: {error}")
        return
    heads = raw.get("num_attention_heads", 0)
    kv_heads = raw.get("num_key_value_heads") or heads
    for name, count in (("attention", heads), ("KV", kv_heads)):
        if count % ranks:
            message = f"{ranks} ranks cannot share {count} {name} heads"
            yield Fault("verifier.service.tensor_parallel", message)
            return
