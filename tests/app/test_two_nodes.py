"""Verifiers of two ranks on one node, drafters on another, by labels; and Ray's own commands."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from deployments.config import EMBEDDED_FILE, ROOT, model_path
from tests.support.cluster import free_port
from tests.support.tiny_models import write_tiny

_ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


def run(*command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *command],
        env=_ENVIRONMENT,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def target(folder: Path) -> Path:
    """A tiny target of the embedded pair's vocabulary, with heads for two ranks."""
    made = write_tiny(
        folder,
        vocab_size=4096,
        intermediate_size=128,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=2048,
        tie_word_embeddings=False,
        bos_token_id=0,
        eos_token_id=0,
    )
    shutil.copy(f"{model_path('models/embedded/tokenizer')}/tokenizer.json", made)
    return made


@pytest.mark.slow
def test_ranks_share_their_node_and_drafters_have_another(tmp_path: Path) -> None:
    values: Any = yaml.safe_load(EMBEDDED_FILE.read_text())
    args = values["applications"][0]["args"]
    args["orchestrator"]["adl"] = {"name": "fixed", "k": 6}
    args["ingress"] = {
        "node_labels": {"foredraft": "verifier"},
        "direct": {"port": free_port()},
    }
    args["drafter"] = {"node_labels": {"foredraft": "drafter"}}
    service = {"model": str(target(tmp_path / "target")), "dtype": "fp32", "tensor_parallel": 2}
    args["verifier"] = {
        "node_labels": {"foredraft": "verifier"},
        "num_cpus": 0.5,
        "service": service | {"row_budget": 32},
    }
    file = tmp_path / "serve.yaml"
    file.write_text(yaml.safe_dump(values))
    run("tests.support.hosts.labelled_nodes", str(file), str(tmp_path / "found.json"))
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["places"] == {
        "ServeReplica:foredraft:ingress": ["verifier"],
        "ServeReplica:foredraft:verifier": ["verifier"],
        "Rank": ["verifier"],
        "ServeReplica:foredraft:drafter": ["drafter"],
    }
    drafted, plain = found["texts"]
    assert drafted["tokens"] == plain["tokens"] and drafted["drafts"] > 0


@pytest.mark.slow
def test_serve_build_takes_the_application(tmp_path: Path) -> None:
    file = tmp_path / "built.yaml"
    run("ray.serve.scripts", "build", "deployments.app:app", "-o", str(file))
    [application] = yaml.safe_load(file.read_text())["applications"]
    assert application["import_path"] == "deployments.app:app"
    names = {each["name"] for each in application["deployments"]}
    assert names >= {"ingress", "drafter", "verifier"}
