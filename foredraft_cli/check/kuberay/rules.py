"""What the operator refuses, or what leaves a cluster without life, though every field is right."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from foredraft_cli.check.fault import Fault
from foredraft_cli.check.kuberay.fields import (
    GcsOptions,
    Group,
    NetworkPolicy,
    NetworkRules,
    RayClusterSpec,
    RayServiceSpec,
)

# DNS-1035, and what is left of 63 characters behind what the operator adds.
_NAME, _LONGEST = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?"), {"RayCluster": 53, "RayService": 47}
_DNS, _DASHBOARD = 53, 8265
_RESOURCES = frozenset({"num-cpus", "num-gpus", "memory", "resources"})


def name_faults(kind: str, metadata: Any) -> Iterator[Fault]:
    """Yield what is wrong with an object's name."""
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(name, str):
        yield Fault("metadata.name", "missing")
    elif len(name) > _LONGEST[kind] or not _NAME.fullmatch(name):
        most = _LONGEST[kind]
        yield Fault("metadata.name", f"{name!r} is no DNS label of at most {most} characters")


def service_faults(spec: RayServiceSpec) -> Iterator[Fault]:
    """Yield what is wrong with a service beside its cluster's own faults."""
    cluster, options = spec.ray_cluster_config, spec.upgrade_strategy.cluster_upgrade_options
    if spec.upgrade_strategy.type == "NewClusterWithIncrementalUpgrade":
        path = "upgradeStrategy.clusterUpgradeOptions"
        if options is None:
            yield Fault(path, "missing: an incremental upgrade needs them")
        elif options.step_size_percent > options.max_surge_percent:
            yield Fault(f"{path}.stepSizePercent", "above maxSurgePercent")
        if not cluster.enable_in_tree_autoscaling:
            yield Fault(
                "rayClusterConfig.enableInTreeAutoscaling", "false: an incremental upgrade needs it"
            )
    if cluster.upgrade_strategy is not None:
        yield Fault("rayClusterConfig.upgradeStrategy", "refused here: it is the service's")
    if cluster.auth_options is not None and cluster.auth_options.enable_k8s_token_auth:
        path = "rayClusterConfig.authOptions.enableK8sTokenAuth"
        yield Fault(path, "refused in a RayService")
    policy = cluster.network_policy
    if policy is not None and policy.denies_ingress and not _opens(policy.head, _DASHBOARD, "in"):
        yield Fault(
            "rayClusterConfig.networkPolicy.head.ingressRules",
            f"none opens port {_DASHBOARD}: the operator could not deploy serveConfigV2",
        )


def cluster_faults(cluster: RayClusterSpec) -> Iterator[Fault]:
    """Yield what is wrong with a cluster beside its pods."""
    yield from _group(cluster.head_group_spec, "headGroupSpec")
    names: set[str] = set()
    for at, group in enumerate(cluster.worker_group_specs):
        path = f"workerGroupSpecs.{at}"
        if group.group_name in names:
            yield Fault(f"{path}.groupName", f"{group.group_name!r} is another group's, too")
        names.add(group.group_name)
        if group.min_replicas > group.max_replicas:
            yield Fault(f"{path}.minReplicas", "above maxReplicas")
        yield from _group(group, path)
    version = tuple(map(int, cluster.ray_version.split(".")))
    if (auth := cluster.auth_options) is not None and auth.mode == "token" and version < (2, 52):
        yield Fault("authOptions.mode", f"Ray {cluster.ray_version} has no tokens")
    if cluster.gcs_fault_tolerance_options is not None:
        for fault in _gcs(cluster.gcs_fault_tolerance_options):
            yield fault.below("gcsFaultToleranceOptions")
    if (policy := cluster.network_policy) is not None:
        faults = [*_one_sided(policy), *_reaches(policy, cluster.enable_in_tree_autoscaling)]
        faults += _unknown_groups(policy, names)
        yield from (fault.below("networkPolicy") for fault in faults)


def _group(group: Group, path: str) -> Iterator[Fault]:
    if "labels" in group.ray_start_params:
        yield Fault(f"{path}.rayStartParams.labels", "refused: they go to the group's labels")
    if group.resources and (both := _RESOURCES & set(group.ray_start_params)):
        message = f"{sorted(both)[0]} stands in rayStartParams, too"
        yield Fault(f"{path}.resources", message)


def _gcs(options: GcsOptions) -> Iterator[Fault]:
    if options.backend == "redis":
        if options.storage is not None:
            yield Fault("storage", "of the backend rocksdb alone")
        return
    for name, value in (
        ("redisAddress", options.redis_address),
        ("redisUsername", options.redis_username),
        ("redisPassword", options.redis_password),
        ("externalStorageNamespace", options.external_storage_namespace),
    ):
        if value:
            yield Fault(name, "of the backend redis alone")
    store = options.storage
    made = store and (store.size is not None or store.storage_class_name or store.access_modes)
    if store is not None and store.claim_name and made:
        yield Fault("storage.claimName", "beside what a new claim would have")


def _one_sided(policy: NetworkPolicy) -> Iterator[Fault]:
    for path, rules in _all_rules(policy):
        if rules.ingress_rules and not policy.denies_ingress:
            yield Fault(f"{path}.ingressRules", f"refused with {policy.mode}")
        if rules.egress_rules and not policy.denies_egress:
            yield Fault(f"{path}.egressRules", f"refused with {policy.mode}")


def _reaches(policy: NetworkPolicy, autoscaling: bool) -> Iterator[Fault]:
    if not policy.denies_egress:
        return
    for path, rules in _all_rules(policy):
        if not _opens(rules, _DNS, "out"):
            yield Fault(f"{path}.egressRules", f"none opens port {_DNS}: no pod finds the head")
    if autoscaling and all(_only(rule, _DNS) for rule in policy.head.egress_rules):
        message = "none opens Kubernetes' API: Ray's autoscaler could add no pod"
        yield Fault("head.egressRules", message)


def _unknown_groups(policy: NetworkPolicy, names: set[str]) -> Iterator[Fault]:
    for at, group in enumerate(policy.worker_groups):
        if group.group_name not in names:
            yield Fault(f"workerGroups.{at}.groupName", f"{group.group_name!r} is no group")


def _all_rules(policy: NetworkPolicy) -> list[tuple[str, NetworkRules]]:
    groups = [(f"workerGroups.{at}", each) for at, each in enumerate(policy.worker_groups)]
    return [("head", policy.head), ("worker", policy.worker), *groups]


def _opens(rules: NetworkRules, port: int, way: str) -> bool:
    found = rules.ingress_rules if way == "in" else rules.egress_rules
    # A rule without ports opens all.
    return any(not _ports(rule) or port in _ports(rule) for rule in found)


def _only(rule: Mapping[str, Any], port: int) -> bool:
    return set(_ports(rule)) == {port}


def _ports(rule: Mapping[str, Any]) -> Sequence[Any]:
    ports = rule.get("ports") or ()
    return [each.get("port") for each in ports if isinstance(each, dict)]
