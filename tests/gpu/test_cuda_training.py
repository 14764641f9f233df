"""Training steps on a GPU: their losses are the CPU's, and what is written loads anywhere."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from training.any_subset.model import AnySubsetModel, export_any_subset, load_any_subset
from training.any_subset.train import AnySubsetRun, train_any_subset
from training.block_dlm.model import export
from training.block_dlm.train import BlockDlmRun, train
from training.corpus.tokenizer import MASK_ID
from training.embedded.target_model import TargetModel, TargetShape

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
SHAPE = TargetShape(vocab=64, hidden=64, layers=2, heads=2, intermediate=128, max_positions=64)
STEPS = 20


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for name in ("core", "rest", "heldout"):
        np.save(tmp_path / f"{name}.npy", np.arange(20_000, dtype=np.uint16) % 61 + 2)
    return tmp_path


def losses(log: Path, name: str) -> list[float]:
    return [
        found[name] for line in log.read_text().splitlines() if name in (found := json.loads(line))
    ]


@pytest.mark.parametrize("kind", ["any_subset", "block_dlm"])
def test_a_gpu_trains_as_a_cpu_does(data: Path, kind: str) -> None:
    start = data / "start"
    found = []
    for device in ("cpu", "cuda"):
        folder = data / device
        if kind == "any_subset":
            export_any_subset(AnySubsetModel(TargetModel(SHAPE, seed=1)), start)
            run = AnySubsetRun(
                data, folder / "out", folder, SHAPE, start, steps=STEPS, length=64, device=device
            )
            train_any_subset(run)
            assert load_any_subset(folder / "out").network.embedding.weight.device.type == "cpu"
            found.append(losses(folder / "log.jsonl", "nats"))
        else:
            export(TargetModel(SHAPE, seed=1), start, 8, MASK_ID)
            train(
                BlockDlmRun(
                    data, start, folder / "out", folder, 2, steps=STEPS, length=64, device=device
                )
            )
            found.append(losses(folder / "log.jsonl", "loss"))
    on_cpu, on_gpu = found
    assert len(on_gpu) == STEPS
    assert on_gpu[-1] < on_gpu[0]
    np.testing.assert_allclose(on_gpu[:3], on_cpu[:3], rtol=0.02)
    np.testing.assert_allclose(on_gpu, on_cpu, rtol=0.2)
