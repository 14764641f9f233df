"""What only a GPU shows of a verifier's pass: the compiled attention, graphs, and its memory."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from bench.micro import gpu_verify
from deployments.config import model_path
from foredraft.errors import ConfigError
from tests.support.attention_pair import LONGEST, Pair, tree
from verifier_service.config import VerifierConfig
from verifier_service.load import load_target
from verifier_service.models.attention.flex import flex
from verifier_service.models.cuda_graphs import GraphedForward
from verifier_service.models.paged import PagedModel, warm_up
from verifier_service.models.port import Segment, alloc

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
TARGET = Path(model_path("models/embedded/target"))
TEXT = np.random.default_rng(0).integers(0, 4096, 400).tolist()


@pytest.mark.parametrize("windows", [(), (None, 20)])
@pytest.mark.parametrize(("heads", "kv_heads", "head_dim"), [(4, 4, 64), (14, 2, 128)])
def test_compiled_attention_equals_the_reference(
    heads: int, kv_heads: int, head_dim: int, windows: tuple[int | None, ...]
) -> None:
    backend = flex(windows, LONGEST, "cuda")
    sizes = {"heads": heads, "kv_heads": kv_heads, "head_dim": head_dim}
    device = torch.device("cuda")
    pair = Pair(backend, windows=windows, device=device, tolerance=1e-4, **sizes)
    one, other, third = [5, 0, 3], [9, 2, 11], [7, 13, 1, 4]
    pair.check((one, 0, 60), (other, 0, 64), (third, 0, 150))
    pair.check((one, 59, 17, tree(1, 16)), (other, 64, 9, tree(2, 9)), (third, 150, 70))
    pair.keep(one, 60, [0, 2, 3])
    pair.check((one, 63, 1), (other, 64, 4))
    pair.check((one, 64, 1))
    pair.check((one, 64, 17))


def passes(model: PagedModel) -> list[np.ndarray]:
    """Run passes of several shapes, with trees, small ones after large ones."""
    one, other = alloc(model, 300), alloc(model, 300)
    parents = (-1, 0, 0, 2, -1, 4, 1, 6)
    return [
        model.forward([Segment(one, 0, TEXT[:250], 3), Segment(other, 0, TEXT[20:80], 10)]),
        model.forward([Segment(one, 250, TEXT[:17], 17), Segment(other, 60, TEXT[:17], 17)]),
        model.forward([Segment(other, 60, TEXT[:9], 8, parents)]),
        model.forward([Segment(other, 60, TEXT[3:12], 9)]),
        model.forward([Segment(one, 249, TEXT[:1], 1), Segment(other, 60, TEXT[:1], 1)]),
        model.forward([Segment(one, 250, TEXT[:1], 1)]),
    ]


def test_replayed_passes_equal_launched_ones() -> None:
    config = VerifierConfig(model=TARGET, device="cuda", dtype="fp32")
    replayed = load_target(config)
    launched = load_target(config.model_copy(update={"cuda_graphs": "off"}))
    warm_up(replayed, replayed.batches(64))
    graphs = replayed.passes
    assert isinstance(graphs, GraphedForward)
    table = alloc(replayed, 64)
    assert graphs.replays(replayed.flat([Segment(table, 0, TEXT[:17], 17)]))
    for _ in range(2):
        for mine, theirs in zip(passes(replayed), passes(launched), strict=True):
            np.testing.assert_allclose(mine, theirs, atol=1e-3)


def test_a_pool_that_does_not_fit_the_device_names_its_key() -> None:
    with pytest.raises(ConfigError) as caught:
        load_target(VerifierConfig(model=TARGET, device="cuda", kv_tokens=1 << 28))
    assert caught.value.param == "kv_tokens"


def test_the_bench_replays_its_passes(tmp_path: Path) -> None:
    out = tmp_path / "verify.md"
    sizes = ["--rows", "1,17", "--batches", "1,4", "--repeats", "2"]
    gpu_verify.main(["--shape", "tiny", "--device", "cuda", *sizes, "--out", str(out)])
    cells = json.loads(out.with_suffix(".json").read_text())["cells"]
    assert all(cell["graphs"] is not None for cell in cells)
