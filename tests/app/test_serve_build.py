"""`serve build`, as a Ray user has it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from deployments.config import ROOT


@pytest.mark.slow
def test_serve_build_takes_the_application(tmp_path: Path) -> None:
    file = tmp_path / "built.yaml"
    command = ["-m", "ray.serve.scripts", "build", "deployments.app:app", "-o", str(file)]
    done = subprocess.run(
        [sys.executable, *command],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    [application] = yaml.safe_load(file.read_text())["applications"]
    assert application["import_path"] == "deployments.app:app"
    names = {each["name"] for each in application["deployments"]}
    assert names >= {"ingress", "drafter", "verifier"}
