"""`foredraft check`: shipped files have no faults; planted ones are found, each with its path."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from deployments.config import ROOT
from foredraft_cli.check.command import app, examined
from foredraft_cli.check.fit import Node, Reserved, Resources, misfits
from tests.unit.check.planting import DELETED, assert_found

SERVE = ROOT / "cluster/serve/two_verifier_nodes.yaml"
ONE_NODE = ROOT / "cluster/serve/one_node_8_gpus.yaml"
AWS, ON_PREMISE = ROOT / "cluster/ray/aws.yaml", ROOT / "cluster/ray/on_premise.yaml"
SHIPPED = [
    *sorted((ROOT / "cluster/serve").glob("*.yaml")),
    *sorted((ROOT / "cluster/ray").glob("*.yaml")),
    *sorted((ROOT / "cluster/kuberay").glob("*.yaml")),
    *sorted((ROOT / "deployments").rglob("*.yaml")),
    ROOT / "examples/qwen.yaml",
]
_A = "applications.0.args"


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: str(file.relative_to(ROOT)))
def test_a_shipped_file_has_no_fault(file: Path) -> None:
    assert examined([file]) == []


def test_shipped_files_of_one_cluster_fit() -> None:
    assert examined([SERVE, AWS]) == []


# The file, the path that is changed, its value, the path of the fault, a word of it.
PLANTED: list[tuple[Path, str, Any, str, str]] = [
    (SERVE, "aplications", [], "aplications", "unknown key"),
    (SERVE, "proxy_location", "Everywhere", "proxy_location", "EveryNode"),
    (SERVE, "http_options.port", 70000, "http_options.port", "65535"),
    (SERVE, "http_options.prot", 1, "http_options.prot", "unknown key"),
    (SERVE, "http_options.ssl_keyfile", "a.key", "http_options", "go together"),
    (SERVE, "applications.0.import_path", "a:b", "applications.0.import_path", "build"),
    (SERVE, "applications.0.autoscaling_policy", DELETED, "applications.0", "go together"),
    (
        SERVE,
        "applications.0.autoscaling_policy.policy_kwargs.policy",
        "fast",
        "applications.0.autoscaling_policy.policy_kwargs.policy",
        "goodput",
    ),
    (
        SERVE,
        "applications.0.autoscaling_policy.policy_kwargs.goodput",
        {"price": -1},
        "applications.0.autoscaling_policy.policy_kwargs.goodput.price",
        "greater",
    ),
    (SERVE, f"{_A}.orchestrator.proposal", "guess", f"{_A}.orchestrator.proposal", "tree"),
    (SERVE, f"{_A}.orchestrator.adl.name", "best", f"{_A}.orchestrator.adl", "goodput"),
    (SERVE, f"{_A}.ingress.num_replicas", 0, f"{_A}.ingress.num_replicas", "greater"),
    (SERVE, f"{_A}.ingress.num_cpu", 1, f"{_A}.ingress.num_cpu", "unknown key"),
    (
        SERVE,
        f"{_A}.drafter.canary",
        {"share": 1.5, "service": {"model": "models/embedded/drafter"}},
        f"{_A}.drafter.canary.share",
        "less than 1",
    ),
    (
        SERVE,
        f"{_A}.drafter.canary",
        {"service": {"model": "models/embedded/drafter", "modle": 1}},
        f"{_A}.drafter.canary.service.modle",
        "unknown key",
    ),
    (
        SERVE,
        f"{_A}.verifier.autoscaling.min_replicas",
        0,
        f"{_A}.verifier",
        "without a verifier",
    ),
    (
        SERVE,
        f"{_A}.drafter.autoscaling.max_replicas",
        0,
        f"{_A}.drafter.autoscaling.max_replicas",
        "greater",
    ),
    (SERVE, f"{_A}.verifier.num_gpus", 0, f"{_A}.verifier.num_gpus", "device is cuda"),
    (SERVE, f"{_A}.drafter.num_gpus", 0, f"{_A}.drafter.num_gpus", "device is cuda"),
    (SERVE, f"{_A}.drafter.service.device", "cpu", f"{_A}.drafter.service.device", "GPUs"),
    (SERVE, f"{_A}.drafter.service.device", "tpu", f"{_A}.drafter.service.device", "pattern"),
    (SERVE, f"{_A}.verifier.service.model", "nowhere", f"{_A}.verifier.service.model", "nowhere"),
    (
        SERVE,
        f"{_A}.verifier.service.tensor_parallel",
        0,
        f"{_A}.verifier.service.tensor_parallel",
        "greater",
    ),
    (
        SERVE,
        f"{_A}.drafter.canary",
        {"service": {"model": "/models/drafter", "target": "/models/target"}},
        f"{_A}.drafter.canary.service.device",
        "GPUs",
    ),
    (ONE_NODE, f"{_A}.ingress.direct", DELETED, "", "nobody listens"),
    (
        ONE_NODE,
        f"{_A}.ingress.grpc",
        {"port": 8000, "host": "0.0.0.0"},
        f"{_A}.ingress.grpc.port",
        "8000",
    ),
    (ONE_NODE, "proxy_location", "HeadOnly", f"{_A}.ingress.direct.port", "http_options"),
    (ONE_NODE, f"{_A}.tokenizer", "nowhere", f"{_A}.tokenizer", "nowhere"),
    (AWS, "max_worker", 3, "", "max_worker"),
    (AWS, "provider.type", DELETED, "provider", "type"),
    (AWS, "cluster_name", DELETED, "", "cluster_name"),
    (AWS, "max_workers", 1, "max_workers", "the types have 6"),
    (AWS, "max_workers", "many", "max_workers", "integer"),
    (AWS, "head_node_type", "main", "head_node_type", "available_node_types"),
    (
        AWS,
        "available_node_types.verifier.min_workers",
        5,
        "available_node_types.verifier.min_workers",
        "above",
    ),
    (AWS, "head_start_ray_commands", ["ray stop"], "head_start_ray_commands", "--head"),
    (AWS, "worker_start_ray_commands", ["ray stop"], "worker_start_ray_commands", "--address"),
    (ON_PREMISE, "provider.head_ip", DELETED, "provider.head_ip", "missing"),
    (
        ON_PREMISE,
        "available_node_types",
        {"a": {"node_config": {}, "resources": {"CPU": 1}}},
        "available_node_types",
        "local",
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


def test_all_faults_of_a_file_are_said(tmp_path: Path) -> None:
    values = yaml.safe_load(SERVE.read_text())
    values["prxy"] = 1
    values["applications"][0]["args"]["ingress"]["num_cpus"] = -1
    planted = tmp_path / "planted.yaml"
    planted.write_text(yaml.safe_dump(values))
    assert {fault.path for _, fault in examined([planted])} == {"prxy", f"{_A}.ingress.num_cpus"}


def test_heads_that_ranks_cannot_share(tmp_path: Path) -> None:
    model = tmp_path / "target"
    model.mkdir()
    config = {"num_attention_heads": 16, "num_key_value_heads": 6}
    (model / "config.json").write_text(json.dumps(config))
    values = yaml.safe_load(SERVE.read_text())
    values["applications"][0]["args"]["verifier"]["service"]["model"] = str(model)
    (tmp_path / "serve.yaml").write_text(yaml.safe_dump(values))
    [(_, fault)] = examined([tmp_path / "serve.yaml"])
    assert fault == (
        f"{_A}.verifier.service.tensor_parallel",
        "4 ranks cannot share 6 KV heads",
    )


def test_models_that_are_here_must_belong_together(tmp_path: Path) -> None:
    values = yaml.safe_load((ROOT / "deployments/local.yaml").read_text())
    args = values["applications"][0]["args"]
    (tmp_path / "other").mkdir()
    (tmp_path / "other/tokenizer.json").write_text("{}")
    args["tokenizer"] = str(tmp_path / "other")
    (tmp_path / "serve.yaml").write_text(yaml.safe_dump(values))
    [(_, fault)] = examined([tmp_path / "serve.yaml"])
    assert fault.path == f"{_A}.tokenizer" and "is not the tokenizer" in fault.what


def test_a_serve_file_has_to_fit_the_cluster_beside_it(tmp_path: Path) -> None:
    values = yaml.safe_load(AWS.read_text())
    values["available_node_types"]["verifier"]["resources"]["GPU"] = 2
    values["available_node_types"]["drafter"]["max_workers"] = 1
    small = tmp_path / "small.yaml"
    small.write_text(yaml.safe_dump(values))
    found = examined([SERVE, small])
    assert found and all("have a place" in fault.what for _, fault in found)


def test_what_fits_is_placed() -> None:
    nodes = [Node(Resources(8, 2))] * 2
    fits = Reserved("a", (Resources(2, 1),) * 4)
    assert list(misfits([fits], nodes)) == []
    [fault] = misfits([fits, Reserved("b", (Resources(0.1, 1),))], nodes)
    assert (
        fault.path == "b" and "1 x 0.1 CPUs and 1 GPUs are reserved, 0 have a place" in fault.what
    )
    assert "2 nodes of 8 CPUs and 2 GPUs" in fault.what


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: 1\na: 2\n", "a stands twice"),
        ("a: [", "not YAML"),
        ("- 1\n", "holds no keys"),
        ("a: 1\n", "neither of Ray Serve"),
    ],
)
def test_a_file_that_is_none_is_said(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "file.yaml").write_text(text)
    [(_, fault)] = examined([tmp_path / "file.yaml"])
    assert told in fault.what


def test_the_command_exits_by_what_it_finds(tmp_path: Path) -> None:
    run: Callable[..., Any] = CliRunner().invoke
    fine = run(app, [str(SERVE), str(AWS)])
    assert fine.exit_code == 0 and "2 files, 0 faults" in fine.output
    (tmp_path / "lost.yaml").write_text("a: 1\n")
    found = run(app, [str(tmp_path / "lost.yaml"), str(tmp_path / "none.yaml"), "--json"])
    assert found.exit_code == 1
    assert {Path(each["file"]).name for each in json.loads(found.output)} == {
        "lost.yaml",
        "none.yaml",
    }
