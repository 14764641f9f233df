"""RayCluster and RayService: planted faults are found, each with its path."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from deployments.config import ROOT
from foredraft.errors import ConfigError
from foredraft_cli.check.command import app, examined
from foredraft_cli.check.fault import Fault
from foredraft_cli.check.kuberay.crd import Definitions
from tests.unit.check.planting import DELETED, assert_found, changed

SERVICE = ROOT / "cluster/kuberay/rayservice.yaml"
HARDENED = ROOT / "cluster/kuberay/rayservice_hardened.yaml"
CLUSTER = ROOT / "cluster/kuberay/raycluster.yaml"
SHIPPED = sorted((ROOT / "cluster/kuberay").glob("*.yaml"))
_S, _C, _A = "spec.serveConfigV2", "spec.rayClusterConfig", "applications.0.args"
_HEAD = f"{_C}.headGroupSpec"
_WORKER = f"{_C}.workerGroupSpecs.1"
_RAY = "template.spec.containers.0"
_DNS = {"ports": [{"port": 53, "protocol": "UDP"}]}

# The file, the path that is changed, its value, the path of the fault, a word of it.
PLANTED: list[tuple[Path, str, Any, str, str]] = [
    (SERVICE, "apiVersion", "ray.io/v1alpha1", "apiVersion", "ray.io/v1"),
    (SERVICE, "metadata.name", "Foredraft", "metadata.name", "DNS label"),
    (SERVICE, "metadata.name", "f" * 48, "metadata.name", "47"),
    (CLUSTER, "metadata.name", "f" * 54, "metadata.name", "53"),
    (SERVICE, "spec.serveConfig", "", "spec.serveConfig", "unknown key"),
    (SERVICE, _S, DELETED, _S, "required"),
    (SERVICE, _S, "applications: [", _S, "not YAML"),
    (SERVICE, "spec.upgradeStrategy.type", "Recreate", "spec.upgradeStrategy.type", "NewCluster"),
    (SERVICE, f"{_C}.upgradeStrategy", {"type": "None"}, f"{_C}.upgradeStrategy", "service's"),
    (SERVICE, f"{_C}.rayVersion", DELETED, f"{_C}.rayVersion", "required"),
    (SERVICE, f"{_C}.rayVersion", "2.51.0", f"{_C}.authOptions.mode", "no tokens"),
    (SERVICE, f"{_C}.headGroup", {}, f"{_C}.headGroup", "unknown key"),
    (SERVICE, f"{_C}.authOptions.mode", "tokens", f"{_C}.authOptions.mode", "disabled"),
    (
        SERVICE,
        f"{_C}.authOptions.enableK8sTokenAuth",
        True,
        f"{_C}.authOptions.enableK8sTokenAuth",
        "refused",
    ),
    (SERVICE, f"{_C}.tlsOptions", {"enable": True}, f"{_C}.tlsOptions.enable", "unknown key"),
    (SERVICE, f"{_WORKER}.groupName", "ingress", f"{_WORKER}.groupName", "another"),
    (SERVICE, f"{_WORKER}.minReplicas", 9, f"{_WORKER}.minReplicas", "above"),
    (SERVICE, f"{_WORKER}.maxReplicas", "two", f"{_WORKER}.maxReplicas", "integer"),
    (
        SERVICE,
        f"{_WORKER}.rayStartParams.labels",
        "foredraft=verifier",
        f"{_WORKER}.rayStartParams.labels",
        "group's labels",
    ),
    (SERVICE, f"{_HEAD}.resources", {"CPU": "0"}, f"{_HEAD}.resources", "rayStartParams"),
    (SERVICE, f"{_HEAD}.{_RAY}.image", "foredraft:latest", f"{_HEAD}.{_RAY}.image", "fixed tag"),
    (SERVICE, f"{_HEAD}.{_RAY}.image", "rayproject/ray:2.50.0", f"{_HEAD}.{_RAY}", "rayVersion"),
    (SERVICE, f"{_WORKER}.{_RAY}.resources", {}, f"{_WORKER}.{_RAY}.resources", "no CPU limit"),
    (SERVICE, f"{_WORKER}.{_RAY}.volumeMount", [], f"{_WORKER}.{_RAY}.volumeMount", "unknown key"),
    (
        SERVICE,
        f"{_WORKER}.{_RAY}.volumeMounts.0.name",
        "model",
        f"{_WORKER}.{_RAY}.volumeMounts.0.name",
        "no volume",
    ),
    (
        SERVICE,
        f"{_WORKER}.{_RAY}.ports.1.containerPort",
        8000,
        f"{_WORKER}.{_RAY}.ports.1.containerPort",
        "twice",
    ),
    (
        SERVICE,
        f"{_WORKER}.{_RAY}.resources.requests",
        {"nvidia.com/gpu": "2"},
        f"{_WORKER}.{_RAY}.resources.requests.nvidia.com/gpu",
        "not the limit",
    ),
    (
        SERVICE,
        f"{_WORKER}.template.spec.restartPolicy",
        "Always",
        f"{_WORKER}.template.spec.restartPolicy",
        "Never",
    ),
    (
        SERVICE,
        f"{_WORKER}.template.spec.toleration",
        [],
        f"{_WORKER}.template.spec.toleration",
        "unknown key",
    ),
    # What the verifiers reserve has no place on nodes of three GPUs less, nor without their label.
    (
        SERVICE,
        f"{_WORKER}.{_RAY}.resources.limits",
        {"cpu": "32", "nvidia.com/gpu": "1"},
        f"{_S}.{_A}.verifier",
        "have a place",
    ),
    (SERVICE, f"{_WORKER}.labels", {}, f"{_S}.{_A}.verifier.node_labels", "foredraft: verifier"),
    (
        SERVICE,
        f"{_C}.networkPolicy",
        {"mode": "DenyAllIngress"},
        f"{_C}.networkPolicy.head.ingressRules",
        "8265",
    ),
    (
        HARDENED,
        f"{_C}.networkPolicy.worker.egressRules",
        [],
        f"{_C}.networkPolicy.worker.egressRules",
        "53",
    ),
    (
        HARDENED,
        f"{_C}.networkPolicy.head.egressRules",
        [_DNS],
        f"{_C}.networkPolicy.head.egressRules",
        "autoscaler",
    ),
    (
        HARDENED,
        f"{_C}.networkPolicy.mode",
        "DenyAllIngress",
        f"{_C}.networkPolicy.head.egressRules",
        "refused",
    ),
    (
        HARDENED,
        f"{_C}.networkPolicy.workerGroups",
        [{"groupName": "verifiers", "egressRules": [_DNS]}],
        f"{_C}.networkPolicy.workerGroups.0.groupName",
        "no group",
    ),
    (
        HARDENED,
        f"{_C}.gcsFaultToleranceOptions.redisAddress",
        "redis:6379",
        f"{_C}.gcsFaultToleranceOptions.redisAddress",
        "redis alone",
    ),
    (
        HARDENED,
        f"{_C}.gcsFaultToleranceOptions.backend",
        "redis",
        f"{_C}.gcsFaultToleranceOptions.storage",
        "rocksdb alone",
    ),
    (
        HARDENED,
        f"{_C}.gcsFaultToleranceOptions.storage.claimName",
        "gcs",
        f"{_C}.gcsFaultToleranceOptions.storage.claimName",
        "new claim",
    ),
    (
        HARDENED,
        "spec.upgradeStrategy.clusterUpgradeOptions",
        DELETED,
        "spec.upgradeStrategy.clusterUpgradeOptions",
        "missing",
    ),
    (
        HARDENED,
        "spec.upgradeStrategy.clusterUpgradeOptions.stepSizePercent",
        60,
        "spec.upgradeStrategy.clusterUpgradeOptions.stepSizePercent",
        "maxSurgePercent",
    ),
    (
        HARDENED,
        f"{_C}.enableInTreeAutoscaling",
        False,
        f"{_C}.enableInTreeAutoscaling",
        "incremental",
    ),
]


@pytest.mark.parametrize(
    ("file", "path", "value", "at", "told"),
    PLANTED,
    ids=[f"{p[0].stem}-{p[1].rpartition('.')[2]}-{i}" for i, p in enumerate(PLANTED)],
)
def test_a_planted_fault_is_found(
    tmp_path: Path, file: Path, path: str, value: Any, at: str, told: str
) -> None:
    assert_found(tmp_path, file, path, value, at, told)


@pytest.mark.parametrize(
    ("old", "new", "at"),
    [
        ("host: 0.0.0.0", "host: 127.0.0.1", "host"),
        ("port: 8000", "port: 8001", "port"),
    ],
)
def test_what_serves_is_reached_through_the_pods_port(
    tmp_path: Path, old: str, new: str, at: str
) -> None:
    text = yaml.safe_load(SERVICE.read_text())["spec"]["serveConfigV2"].replace(old, new)
    assert_found(tmp_path, SERVICE, _S, text, f"{_S}.http_options.{at}", "")


def test_shipped_files_of_one_cluster_fit() -> None:
    assert examined([CLUSTER, ROOT / "cluster/serve/cpu_nodes.yaml"]) == []


def test_a_cluster_that_no_label_fits(tmp_path: Path) -> None:
    """The Serve file beside it is at fault."""
    values = changed(yaml.safe_load(CLUSTER.read_text()), "spec.workerGroupSpecs.1.labels", {})
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump(values))
    found = examined([ROOT / "cluster/serve/cpu_nodes.yaml", tmp_path / "cluster.yaml"])
    assert [fault.path for _, fault in found] == [f"{_A}.drafter.node_labels"]


DEFINITION = """
spec:
  group: ray.io
  names: {kind: RayCluster}
  versions:
    - name: v1
      schema:
        openAPIV3Schema:
          type: object
          properties:
            apiVersion: {type: string}
            kind: {type: string}
            metadata: {type: object}
            spec:
              type: object
              properties:
                rayVersion: {type: string}
                free: {type: object, x-kubernetes-preserve-unknown-fields: true}
"""


def test_a_definition_of_the_cluster_decides(tmp_path: Path) -> None:
    (tmp_path / "crd.yaml").write_text(DEFINITION)
    known = Definitions([tmp_path / "crd.yaml"])
    cluster = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "a"}}
    fine = {"rayVersion": "2.60.0", "free": {"any": 1}}
    assert known.faults({**cluster, "spec": fine}) == []
    assert known.faults({**cluster, "kind": "RayJob", "spec": 1}) == []
    [mistyped] = known.faults({**cluster, "spec": {"rayVersion": 2}})
    assert mistyped.path == "spec.rayVersion" and "not of type 'string'" in mistyped.what
    [unknown] = known.faults({**cluster, "spec": {"rayVersoin": "2"}})
    assert unknown == Fault(
        "spec",
        "by its definition: Additional properties are not allowed ('rayVersoin' was unexpected)",
    )


def test_the_command_reads_what_helm_writes_and_a_definition(tmp_path: Path) -> None:
    (tmp_path / "crd.yaml").write_text(DEFINITION)
    text = CLUSTER.read_text()
    fine = CliRunner().invoke(app, ["-"], input=text)
    assert fine.exit_code == 0 and "1 files, 0 faults" in fine.output
    held = CliRunner().invoke(app, ["--crd", str(tmp_path / "crd.yaml"), "-"], input=text)
    assert held.exit_code == 1 and "-: spec: by its definition: Additional" in held.output


@pytest.mark.parametrize("text", ["", "spec: {group: a}", "- 1"])
def test_a_file_without_a_definition_is_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "crd.yaml").write_text(text)
    with pytest.raises(ConfigError, match="no CustomResourceDefinition"):
        Definitions([tmp_path / "crd.yaml"])


@pytest.fixture(scope="module")
def kuberay() -> Definitions:
    """KubeRay's definitions, of a folder that FOREDRAFT_KUBERAY_CRDS names."""
    folder = os.environ.get("FOREDRAFT_KUBERAY_CRDS")
    if folder is None:
        pytest.skip("FOREDRAFT_KUBERAY_CRDS names no folder with KubeRay's crds/*.yaml")
    return Definitions(sorted(Path(folder).glob("*.yaml")))


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_shipped_objects_hold_to_kuberays_own_definitions(file: Path, kuberay: Definitions) -> None:
    assert examined([file], kuberay) == []
