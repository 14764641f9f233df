"""Models of other shapes are trained beside the target."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from training.cli import app
from training.embedded.target_model import load_target


@pytest.mark.slow
def test_a_model_has_the_shape_and_the_name_asked_for(tmp_path: Path) -> None:
    for name in ("core", "rest", "heldout"):
        tokens = np.random.default_rng(0).integers(0, 4096, 20_000)
        np.save(tmp_path / f"{name}.npy", tokens.astype(np.uint16))
    shape = "--hidden 32 --heads 2 --intermediate 48 --layers 1 --batch 1 --micro-batch 1"
    run = f"--work {tmp_path} --out {tmp_path / 'out'} --name lm --minutes 0.001 --ranks 1"
    answer = CliRunner().invoke(app, ["target", "--no-compile", *shape.split(), *run.split()])
    assert answer.exit_code == 0, answer.output
    trained = load_target(tmp_path / "out" / "lm").shape
    assert (trained.hidden, trained.heads, trained.intermediate, trained.layers) == (32, 2, 48, 1)
    assert (tmp_path / "lm").is_dir() and not (tmp_path / "target").exists()
