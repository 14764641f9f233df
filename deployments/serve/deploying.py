"""A file as Ray Serve gets it, so that a changed one replaces no more than it must.

Serve replaces every replica of an application whose `args` or policy have changed. So they stay the
same here, but for a denoiser that comes or goes: a file's arguments go into the options of its
deployments (deployments/serve/parts.py), its policy's parameters to where the policy looks for
them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Set
from enum import StrEnum
from typing import Any

from deployments.autoscaling.names import settings_key
from deployments.canary.outcome import settled
from deployments.config import ServeFile, located
from deployments.serve.memory import ClusterMemory
from deployments.serve.parts import deployment_options
from deployments.serve.platform.applications import (
    deploy_file,
    deployed_applications,
    is_starting,
    refusals,
    require_running,
)
from foredraft.errors import Unavailable

_POLL_S = 0.25
# Of a deployment's options: those that Serve starts processes with, and those that count them.
_PROCESS = {
    "ray_actor_options",
    "placement_group_bundles",
    "placement_group_strategy",
    "placement_group_bundle_label_selector",
}
_NUMBER = {"num_replicas", "autoscaling_config"}
# The arguments of an application that has a denoiser's deployment; which model is in its options.
_WITH_DENOISER = {"denoiser": {"service": {"model": "models/embedded/block_dlm_8"}}}


class Change(StrEnum):
    """What an update does to the replicas of a deployment."""

    NONE = "unchanged"
    NUMBER = "another number of replicas"
    IN_PLACE = "changed in place"
    PROCESS = "replaced, one after the other"
    NEW = "new"


def serve_values(file: ServeFile) -> dict[str, Any]:
    """Return a Serve config file's values for a file; raise ConfigError for its paths."""
    entry = file.application
    options = deployment_options(located(entry.args))
    application: dict[str, Any] = {
        "name": entry.name,
        "route_prefix": entry.route_prefix,
        "import_path": entry.import_path,
        "deployments": [{"name": name} | each for name, each in options.items()],
    }
    if entry.args.denoiser is not None:
        application["args"] = _WITH_DENOISER
    if (policy := entry.autoscaling_policy) is not None:
        application["autoscaling_policy"] = policy.model_dump(mode="json")
    values = file.model_dump(mode="json", exclude_none=True, exclude={"applications"})
    return values | {"applications": [application]}


def deploy(file: ServeFile) -> None:
    """Deploy a file to the cluster that this process is connected to; returns before it runs.

    A canary that was decided on before is not tried again. Other applications stay as they are.
    """
    memory = ClusterMemory()
    memory.put(_file_key(file.application.name), file.model_dump_json().encode())
    values = serve_values(settled(file, memory))
    [application] = values["applications"]
    if (policy := application.get("autoscaling_policy")) is not None:
        settings = json.dumps(policy["policy_kwargs"])
        memory.put(settings_key(application["name"]), settings.encode())
        policy["policy_kwargs"] = {"kept": True}
    deploy_file(values)


def settle(application: str) -> None:
    """Deploy an application's file again, for a new verdict on its canary.

    Without `foredraft deploy` or `foredraft serve` there is no file: the canary then has no
    sessions any more, or keeps its share, until another file is deployed.
    """
    kept = ClusterMemory().get(_file_key(application))
    if kept is not None:
        deploy(ServeFile.model_validate_json(kept))


def _file_key(application: str) -> str:
    return f"foredraft:file:{application}"


def wait_until_deployed(application: str, timeout_s: float, anew: bool = False) -> None:
    """Return once an application runs as it was deployed.

    Raise Unavailable, with the reasons, when it fails to or is not there in time. Serve tries a
    replica that fails twice more: of one that is started anew and refuses its configuration, which
    no other replica has let go of, that is not awaited.
    """
    until = time.monotonic() + timeout_s
    while is_starting(application) and time.monotonic() < until:
        if anew and (refused := refusals(application)):
            raise Unavailable("; ".join(refused))
        time.sleep(_POLL_S)
    require_running(application)


def deployed_changes(file: ServeFile) -> dict[str, Change]:
    """Return what deploying a file would do to each deployment of the connected cluster."""
    [application] = serve_values(settled(file, ClusterMemory()))["applications"]
    return changes(deployed_applications().get(application["name"]), application)


def changes(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> dict[str, Change]:
    """Return what becomes of each deployment when an application's values follow others."""
    then = {each["name"]: each for each in (before or {}).get("deployments", ())}
    anew = before is None or (before.get("args") or {}) != after.get("args", {})
    # Serve replaces all replicas where a policy comes or goes.
    anew |= bool((before or {}).get("autoscaling_policy")) != bool(after.get("autoscaling_policy"))
    found = {}
    for options in after["deployments"]:
        old = then.get(options["name"])
        if old is None:
            found[options["name"]] = Change.NEW
            continue
        keys = options.keys() | _PROCESS | _NUMBER
        changed = {key for key in keys if options.get(key) != old.get(key)}
        found[options["name"]] = Change.PROCESS if anew else _of_options(changed)
    return found


def _of_options(changed: Set[str]) -> Change:
    if changed & _PROCESS:
        return Change.PROCESS
    if changed - _NUMBER:
        return Change.IN_PLACE
    return Change.NUMBER if changed else Change.NONE
