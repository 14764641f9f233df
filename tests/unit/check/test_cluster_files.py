"""What the files in cluster/ say of Foredraft, Ray and each other."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from ray.serve.schema import ServeDeploySchema

from deployments.config import ROOT
from deployments.serve.environment import ENVIRONMENT
from foredraft import __version__

CLUSTER = ROOT / "cluster"
YAML = sorted(CLUSTER.rglob("*.yaml"))
SERVE = [
    *sorted((CLUSTER / "serve").glob("*.yaml")),
    *sorted((ROOT / "deployments").rglob("*.yaml")),
]
_IMAGE = re.compile(r"\bforedraft:(\S+?)(?:-cuda)?\s")


def ray_version() -> str:
    [found] = re.findall(r"^ray==(\S+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    return str(found)


@pytest.mark.parametrize("file", SERVE, ids=lambda file: str(file.relative_to(ROOT)))
def test_ray_takes_a_serve_file(file: Path) -> None:
    ServeDeploySchema.model_validate(yaml.safe_load(file.read_text()))


def test_images_are_of_this_version() -> None:
    files = [*YAML, CLUSTER / "docker/Dockerfile", ROOT / "docs/cluster.md"]
    tags = {tag for file in files for tag in _IMAGE.findall(file.read_text())}
    assert tags == {__version__}


def test_ray_is_the_one_that_is_installed() -> None:
    found = re.compile(r'rayVersion: "(\S+)"')
    versions = {version for file in YAML for version in found.findall(file.read_text())}
    assert versions == {ray_version()}


def test_the_image_runs_as_nobody_and_has_what_ray_is_started_with() -> None:
    text = (CLUSTER / "docker/Dockerfile").read_text()
    last = text[text.rindex("\nFROM ") :]
    assert "USER 1000:1000" in last
    environment = dict(re.findall(r"^\s*(?:ENV )?(\w+)=(\S+)(?: \\)?$", last, re.MULTILINE))
    assert environment == ENVIRONMENT
    assert re.findall(r"^FROM \S*:\S*", text, re.MULTILINE) == ["FROM python:3.11.14-slim-bookworm"]


def test_nodes_on_premise_have_what_ray_is_started_with() -> None:
    values = yaml.safe_load((CLUSTER / "ray/on_premise.yaml").read_text())
    for key in ("head_start_ray_commands", "worker_start_ray_commands"):
        command = values[key][-1]
        for name, value in ENVIRONMENT.items():
            assert re.search(rf"\b{name}={re.escape(value)}\b", command), (key, name)


def test_the_chart_is_of_this_version() -> None:
    chart = yaml.safe_load((CLUSTER / "helm/foredraft/Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == __version__
    schema = json.loads((CLUSTER / "helm/foredraft/values.schema.json").read_text())
    assert schema["additionalProperties"] is False
