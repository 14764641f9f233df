"""The GPU bench, run on a CPU on a checkpoint that it writes; its times are not looked at."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from bench.micro import gpu_verify
from bench.micro.gpu_verify import Cell, targets
from bench.micro.random_checkpoint import read_bytes, write
from verifier_service.config import VerifierConfig
from verifier_service.load import load_target


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_all_cells_are_measured_and_written(tmp_path: Path) -> None:
    out = tmp_path / "verify.md"
    sizes = ["--rows", "1,17,330", "--batches", "1,2", "--prefix", "70", "--repeats", "1"]
    gpu_verify.main(["--shape", "tiny", "--device", "cpu", *sizes, "--out", str(out)])
    report = json.loads(out.with_suffix(".json").read_text())
    cells = [Cell(**cell) for cell in report["cells"]]
    found = [(cell.kind, cell.rows, cell.batch) for cell in cells]
    paths = [("path", rows, batch) for batch in (1, 2) for rows in (1, 17, 330)]
    assert found == [*paths, ("tree", 17, 1)]
    # Two times 330 rows are more than are recorded.
    assert [cell.batch * cell.rows for cell in cells if cell.graphs is None] == [660]
    assert len(report["targets"]) == 2
    assert out.read_text().count("\n| ") == 1 + len(cells)


def test_a_checkpoint_is_loaded_by_the_loader_and_its_bytes_are_counted(tmp_path: Path) -> None:
    write(tmp_path, "tiny", torch.device("cpu"), shard_bytes=50_000)
    files = sorted(tmp_path.glob("*.safetensors"))
    assert len(files) > 2
    weights = {}
    for file in files:
        with safe_open(file, "pt") as stored:
            weights |= {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
    assert set(
        json.loads((tmp_path / "model.safetensors.index.json").read_text())["weight_map"]
    ) == set(weights)
    read = sum(w.nbytes for name, w in weights.items() if name != "model.embed_tokens.weight")
    assert read_bytes(tmp_path) == read
    model = load_target(VerifierConfig(model=tmp_path, attention="matmul"))
    assert model.info.vocab_size == 512


@pytest.mark.parametrize(("verify", "says"), [(1.1, ["ok", "ok"]), (1.2, ["short", "ok"])])
def test_targets_are_those_of_one_session(verify: float, says: list[str]) -> None:
    cells = [
        Cell("path", 1, 1, 9.0, 1.0, 1.0, 0.98, 0.1),
        Cell("path", 17, 1, 9.0, verify, 2.0, 1.0, 0.1),
        Cell("path", 17, 8, 9.0, 9.0, 9.0, 1.0, 0.1),
        Cell("tree", 17, 1, 9.0, 9.0, 9.0, 1.0, 0.1),
    ]
    assert [line.rpartition(" ")[2] for line in targets(cells)] == says
