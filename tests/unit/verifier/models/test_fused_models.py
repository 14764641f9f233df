"""Loaded targets that tell fused features: those of transformers, by each forward."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

from foredraft.errors import ConfigError, WeightsError
from foredraft.features.fusion import read_fusion
from foredraft_kernels.loader import load_kernels, supported_isas
from tests.support.families.dflash import (
    HIDDEN,
    VOCAB,
    as_tensor,
    fused,
    write_drafter,
    write_target,
)
from verifier_service.config import FeaturesConfig, VerifierConfig
from verifier_service.load import load_target
from verifier_service.models.compiled.forward import NativeForward
from verifier_service.models.feature_model import FusedModel
from verifier_service.models.port import Segment
from verifier_service.models.transformers_forward import TransformersForward

KERNELS = load_kernels()
ISAS = supported_isas(KERNELS, "bf16") if KERNELS else []


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, dict[str, torch.Tensor]]:
    folder = tmp_path_factory.mktemp("pair")
    target = write_target(folder / "target")
    return target, folder / "drafter", write_drafter(folder / "drafter")


def config_of(target: Path, drafter: Path, **fields: object) -> VerifierConfig:
    features = FeaturesConfig(model=drafter)
    return VerifierConfig(model=target, features=features, kv_tokens=2048, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
def test_a_checkpoints_features_are_those_of_transformers(
    pair: tuple[Path, Path, dict[str, torch.Tensor]], dtype: str
) -> None:
    target, drafter, weights = pair
    model = load_target(config_of(target, drafter, dtype=dtype))
    assert isinstance(model, FusedModel)
    assert model.info.features_hash == read_fusion(drafter).hash
    text = [3 + 7 * i % 19 for i in range(40)]
    blocks = model.pool.take(1)
    whole, rest = Segment(blocks, 0, text[:30], 1), Segment(blocks, 30, text[30:], 10)
    logits, first = model.forward_fused([whole], range(30))
    more, second = model.forward_fused([rest], range(2, 10))
    found = as_tensor(first.tobytes() + second.tobytes())
    expected = fused(target, weights, text)[[*range(30), *range(32, 40)]]
    exact = dtype == "fp32"
    torch.testing.assert_close(
        found, expected, atol=1e-3 if exact else 0.3, rtol=2**-7 if exact else 0.1
    )
    again = np.concatenate([model.forward([whole]), model.forward([rest])])
    assert np.array_equal(np.concatenate([logits, more]), again)
    assert found.shape[1] == HIDDEN and logits.shape == (1, VOCAB)


def test_a_fusion_for_another_target_is_refused(
    pair: tuple[Path, Path, dict[str, torch.Tensor]], tmp_path: Path
) -> None:
    target, drafter, _ = pair
    sizes = {"num_hidden_layers": 3, "num_attention_heads": 2, "num_key_value_heads": 1}
    LlamaForCausalLM(
        LlamaConfig(vocab_size=VOCAB, hidden_size=64, intermediate_size=32, **sizes)
    ).save_pretrained(tmp_path / "wide")
    with pytest.raises(WeightsError, match=r"fc\.weight is \[32, 64\].*\[32, 128\]"):
        load_target(config_of(tmp_path / "wide", drafter))
    layers = {"dflash_config": {"mask_token_id": 1, "target_layer_ids": [0, 3]}}
    write_drafter(tmp_path / "deep", **layers)
    with pytest.raises(WeightsError, match="target_layer_ids"):
        load_target(config_of(target, tmp_path / "deep"))
    with pytest.raises(WeightsError, match="no fusion"):
        load_target(config_of(target, target))
    with pytest.raises(ConfigError) as refused:
        load_target(config_of(target, drafter, tensor_parallel=2))
    assert refused.value.param == "features"


def write_fusion(folder: Path, width: int, layer_ids: Sequence[int]) -> Path:
    """Write what a verifier reads of a DFlash checkpoint, for a target of the same width."""
    folder.mkdir(exist_ok=True)
    fc = torch.empty(width, len(layer_ids) * width, dtype=torch.bfloat16)
    torch.nn.init.kaiming_uniform_(fc, a=5**0.5)
    norm = torch.randn(width, dtype=torch.bfloat16)
    weights = {"fc.weight": fc, "hidden_norm.weight": norm}
    save_file(weights, folder / "model.safetensors")
    config = {
        "dflash_config": {"target_layer_ids": list(layer_ids)},
        "hidden_size": width,
        "rms_norm_eps": 1e-5,
    }
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A target that the compiled forward takes, and a fusion of its states."""
    folder = tmp_path_factory.mktemp("small")
    torch.manual_seed(0)
    sizes = {"num_hidden_layers": 4, "num_attention_heads": 2, "num_key_value_heads": 1}
    LlamaForCausalLM(
        LlamaConfig(
            vocab_size=96, hidden_size=64, intermediate_size=64, initializer_range=0.3, **sizes
        )
    ).save_pretrained(folder / "target")
    return folder / "target", write_fusion(folder / "drafter", 64, (0, 2))


@pytest.mark.skipif(not ISAS, reason="the compiled forward does not run here")
def test_the_compiled_forward_returns_the_states_of_transformers(
    small: tuple[Path, Path],
) -> None:
    target, drafter = small
    compiled = load_target(config_of(target, drafter, threads=2))
    slow = load_target(config_of(target, drafter, forward="transformers"))
    plain = load_target(VerifierConfig(model=target, kv_tokens=2048))
    assert isinstance(compiled, FusedModel) and isinstance(compiled.passes, NativeForward)
    assert compiled.info.features_hash == read_fusion(drafter).hash
    text = [5 + 7 * i % 89 for i in range(40)]
    parents = (-1, 0, -1, 2)
    found = []
    for model in (compiled, slow):
        assert isinstance(model, FusedModel)
        one, two = model.pool.take(1), model.pool.take(1)
        model.forward_fused([Segment(one, 0, text[:30], 1)], [])
        segments = [Segment(two, 0, text[:3], 1), Segment(one, 30, text[30:], 5, parents)]
        logits, features = model.forward_fused(segments, [0, 2, *range(5, 13)])
        again = model.forward(segments)
        assert np.array_equal(logits, again)
        found.append(as_tensor(features.tobytes(), 64))
    blocks = plain.pool.take(1), plain.pool.take(1)
    plain.forward([Segment(blocks[0], 0, text[:30], 1)])
    segments = [Segment(blocks[1], 0, text[:3], 1), Segment(blocks[0], 30, text[30:], 5, parents)]
    assert np.array_equal(compiled.forward_fused(segments, [1])[0], plain.forward(segments))
    torch.testing.assert_close(found[0], found[1], atol=0.15, rtol=0.1)
    assert found[0].abs().mean() > 0.3


@pytest.mark.skipif(not ISAS, reason="the compiled forward does not run here")
@pytest.mark.parametrize(
    ("rows", "layers", "what"),
    [([3], (0,), "row"), ([-1], (0,), "row"), ([0], (2, 0), "layers"), ([0], (3,), "layers")],
)
def test_states_that_are_not_there_are_refused_before_c(
    small: tuple[Path, Path], rows: list[int], layers: tuple[int, ...], what: str
) -> None:
    model = load_target(config_of(*small))
    assert isinstance(model.passes, NativeForward)
    flat = model.flat([Segment(model.pool.take(1), 0, [5, 6, 7], 1)])
    with pytest.raises(ValueError, match=what):
        model.passes.hidden_states(flat, rows, layers)


def test_of_the_last_layer_transformers_forward_tells(
    small: tuple[Path, Path], tmp_path: Path
) -> None:
    last = write_fusion(tmp_path, 64, (3,))
    assert isinstance(load_target(config_of(small[0], last)).passes, TransformersForward)
