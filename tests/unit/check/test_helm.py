"""The Helm chart, by Helm's own library: what it renders has no fault, and bad values are named."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from deployments.config import ROOT
from foredraft_cli.check import helm_values
from foredraft_cli.check.command import NO_DEFINITIONS, examined
from foredraft_cli.check.kuberay.crd import Definitions
from tests.unit.check.planting import changed

helm = pytest.importorskip("helm_python", reason="helm-python-sdk is not installed")
kubernetes_validate = pytest.importorskip("kubernetes_validate")

CHART = ROOT / "cluster/helm/foredraft"
_KUBERNETES = "1.31"
_POOLS = ("ingress", "drafter", "verifier")
# What of a chart's toggles each is rendered with, beside the shipped files.
TOGGLES: dict[str, dict[str, Any]] = {
    "default": {},
    "open": {"auth": {"enabled": False}, "networkPolicy": {"enabled": False}},
    "watched": {"podMonitor": {"enabled": True, "labels": {"release": "prometheus"}}},
    "named": {
        "models": {"name": "ours", "tokenizer": "models/embedded/target"},
        "image": {"pullSecrets": [{"name": "registry"}]},
    },
    "placed": {
        name: {
            "nodeSelector": {"pool": name},
            "tolerations": [{"key": "pool", "operator": "Exists"}],
            "affinity": {"nodeAffinity": {}},
            "env": [{"name": "HF_HUB_OFFLINE", "value": "1"}],
        }
        for name in (*_POOLS, "head")
    },
    "hardened": {
        "certificates": {"secretName": "foredraft-certificates"},
        "tlsOptions": {"enabled": True},
        "gcsFaultToleranceOptions": {"backend": "rocksdb", "storage": {"size": "1Gi"}},
        "upgradeStrategy": {
            "type": "NewClusterWithIncrementalUpgrade",
            "clusterUpgradeOptions": {
                "gatewayClassName": "istio",
                "stepSizePercent": 25,
                "intervalSeconds": 60,
            },
        },
        "autoscalerOptions": {"idleTimeoutSeconds": 300},
    },
}
FILES = [path.name for path in sorted(CHART.glob("values-*.yaml"))]


@pytest.fixture(scope="module")
def chart() -> Iterator[Any]:
    with helm.Chart.load(CHART) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def definitions() -> Definitions:
    """KubeRay's own, where FOREDRAFT_KUBERAY_CRDS names their folder."""
    folder = os.environ.get("FOREDRAFT_KUBERAY_CRDS")
    return Definitions(sorted(Path(folder).glob("*.yaml"))) if folder else NO_DEFINITIONS


def rendered(chart: Any, values: dict[str, Any]) -> list[dict[str, Any]]:
    chart.validate_schema(values)
    files = chart.render(values, name="demo", namespace="prod")
    texts = [text for name, text in files.items() if name.endswith(".yaml")]
    return [each for text in texts for each in yaml.safe_load_all(text) if each]


def values_of(case: str) -> dict[str, Any]:
    if case in TOGGLES:
        return TOGGLES[case]
    return dict(yaml.safe_load((CHART / case).read_text()))


@pytest.mark.parametrize("case", [*TOGGLES, *FILES])
def test_what_is_rendered_has_no_fault(
    case: str, chart: Any, definitions: Definitions, tmp_path: Path
) -> None:
    objects = rendered(chart, values_of(case))
    file = tmp_path / "rendered.yaml"
    file.write_text(yaml.safe_dump_all(objects))
    assert examined([file], definitions) == []
    assert [each["kind"] for each in objects].count("RayService") == 1
    for each in objects:
        if each["apiVersion"] == "networking.k8s.io/v1":
            kubernetes_validate.validate(each, _KUBERNETES, strict=True)


@pytest.mark.parametrize("case", [*TOGGLES, *FILES])
def test_pods_are_kubernetes_own(case: str, chart: Any) -> None:
    [service] = [one for one in rendered(chart, values_of(case)) if one["kind"] == "RayService"]
    check_pods(service["spec"]["rayClusterConfig"])


def check_pods(cluster: dict[str, Any]) -> None:
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        pod = {"apiVersion": "v1", "kind": "Pod", **group["template"]}
        kubernetes_validate.validate(pod, _KUBERNETES, strict=True)
        spec = pod["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        for container in spec["containers"]:
            assert container["securityContext"]["allowPrivilegeEscalation"] is False


@pytest.mark.parametrize("file", sorted((ROOT / "cluster/kuberay").glob("*.yaml")))
def test_shipped_objects_are_kubernetes_own(file: Path) -> None:
    values = yaml.safe_load(file.read_text())
    if values["kind"] == "NetworkPolicy":
        kubernetes_validate.validate(values, _KUBERNETES, strict=True)
    if values["apiVersion"] == "ray.io/v1":
        check_pods(values["spec"].get("rayClusterConfig", values["spec"]))


@pytest.mark.parametrize("file", ["values.yaml", *FILES])
def test_shipped_values_have_no_fault(file: str) -> None:
    assert examined([CHART / file]) == []


def test_values_are_merged_as_helm_does(chart: Any) -> None:
    values = {
        "image": {"tag": "1"},
        "orchestrator": {"adl": None},
        "head": {"env": [{"name": "A"}]},
    }
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    assert helm_values.merged(defaults, values) == chart.merge_values(values)


def test_helm_has_nothing_against_the_chart() -> None:
    found = helm.lint(CHART)
    assert found["errors"] == []
    assert [each["error"] for each in found["messages"]] == ["icon is recommended"]


def test_the_notes_say_what_is_open(chart: Any) -> None:
    def notes(values: dict[str, Any]) -> str:
        return str(
            chart.render(values, name="demo", namespace="prod")["foredraft/templates/NOTES.txt"]
        )

    assert "whoever reaches that port is served" in notes({})
    kept = notes(values_of("values-gpu.yaml"))
    assert "FOREDRAFT_API_KEY" in kept and "whoever" not in kept
    assert "every pod reaches" in notes(TOGGLES["open"])


def test_a_pod_has_the_certificate_of_its_role_alone(chart: Any) -> None:
    [service] = [one for one in rendered(chart, TOGGLES["hardened"]) if one["kind"] == "RayService"]
    assert "mtls: /etc/foredraft-certificates" in service["spec"]["serveConfigV2"]
    cluster = service["spec"]["rayClusterConfig"]
    assert "volumes" not in cluster["headGroupSpec"]["template"]["spec"]
    roles = {}
    for group in cluster["workerGroupSpecs"]:
        [volume] = group["template"]["spec"]["volumes"]
        paths = [each["path"] for each in volume["secret"]["items"]]
        roles[group["groupName"]] = paths
    assert roles == {
        name: ["ca.crt", f"{role}.crt", f"{role}.key"]
        for name, role in zip(_POOLS, ("orchestrator", "drafter", "verifier"), strict=True)
    }


def test_a_changed_chart_version_changes_no_pod(chart: Any) -> None:
    """It would be another cluster to KubeRay."""
    [service] = [one for one in rendered(chart, {}) if one["kind"] == "RayService"]
    assert "helm.sh/chart" in service["metadata"]["labels"]
    assert "helm.sh/chart" not in yaml.safe_dump(service["spec"])


# The path of a value, the value, what Helm names.
BAD_VALUES: list[tuple[str, Any, str]] = [
    ("imgae", {}, "imgae"),
    ("image.tag", "latest", "image/tag"),
    ("image.repository", "foredraft:0.2.0", "image/repository"),
    ("image.pullPolicy", "Sometimes", "image/pullPolicy"),
    ("rayVersion", "2.60", "rayVersion"),
    ("models.target", "", "models/target"),
    ("models.volume", {"a": {}, "b": {}}, "models/volume"),
    ("keys.secret", "a", "secret"),
    ("autoscaling.policy", "fast", "autoscaling/policy"),
    ("verifier.replicas", 0, "verifier/replicas"),
    ("verifier.gpu", 1, "gpu"),
    ("verifier.autoscaling", {"min": 0, "max": 2}, "verifier/autoscaling"),
    ("drafter.autoscaling", {"min": 0}, "drafter/autoscaling"),
    ("drafter.nodes.max", "four", "drafter/nodes/max"),
    ("ingress.resources.limits", {"cpu": None}, "ingress/resources/limits"),
    ("ingress.resources.limits.memory", "much", "ingress/resources/limits/memory"),
    ("networkPolicy.client", [], "client"),
    ("upgradeStrategy.type", "Recreate", "upgradeStrategy/type"),
    ("podMonitor.interval", "often", "podMonitor/interval"),
    # Both pools are scaled, by a policy, or neither is.
    ("drafter.autoscaling", {"min": 0, "max": 2}, "drafter/autoscaling"),
    ("autoscaling.policy", "goodput", "autoscaling"),
]


@pytest.mark.parametrize(
    ("path", "value", "named"),
    BAD_VALUES,
    ids=[f"{each[0]}-{i}" for i, each in enumerate(BAD_VALUES)],
)
def test_bad_values_are_refused_by_name(chart: Any, path: str, value: Any, named: str) -> None:
    """By Helm, and by `foredraft check` beside the chart."""
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    values = changed(defaults, path, value)
    with pytest.raises(helm.HelmError, match=named):
        chart.validate_schema(values)
    found = [f"{at}.{what}".replace(".", "/") for at, what in helm_values.faults(values, CHART)]
    assert any(named in each for each in found), found


# Values that the schema cannot know to be wrong, and the path of the fault in what is rendered.
MISFITS: list[tuple[str, Any, str]] = [
    ("verifier.gpus", 2, "spec.serveConfigV2.applications.0.args.verifier"),
    ("verifier.nodes.max", 1, "spec.serveConfigV2.applications.0.args.verifier"),
    ("verifier.service.tensor_parallel", 8, "spec.serveConfigV2.applications.0.args.verifier"),
    ("drafter.gpus", 0, "spec.serveConfigV2.applications.0.args.drafter.num_gpus"),
    ("drafter.settings.num_cpu", 1, "spec.serveConfigV2.applications.0.args.drafter.num_cpu"),
    (
        "orchestrator.proposal",
        "guess",
        "spec.serveConfigV2.applications.0.args.orchestrator.proposal",
    ),
    (
        "autoscaling.parameters.interval",
        1,
        "spec.serveConfigV2.applications.0.autoscaling_policy.policy_kwargs.interval",
    ),
]


@pytest.mark.parametrize(("path", "value", "at"), MISFITS, ids=[each[0] for each in MISFITS])
def test_what_does_not_fit_is_found_in_what_is_rendered(
    chart: Any, tmp_path: Path, path: str, value: Any, at: str
) -> None:
    values = changed(values_of("values-gpu.yaml"), path, value)
    file = tmp_path / "rendered.yaml"
    file.write_text(yaml.safe_dump_all(rendered(chart, values)))
    paths = [fault.path for _, fault in examined([file])]
    assert any(found.startswith(at) for found in paths), paths
