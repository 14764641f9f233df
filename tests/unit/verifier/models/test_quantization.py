"""Quantised targets: torchao's weights under our forward, drafts that change nothing, refusals."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from deployments.config import model_path
from foredraft.errors import ConfigError
from foredraft.messages import Verdict
from foredraft.types import SamplingParams
from tests.support.tiny_models import SIZES, write_tiny
from tests.support.verifiers import opening, round_after
from verifier_service.config import VerifierConfig
from verifier_service.load import load_engine, load_target
from verifier_service.models.port import Segment, alloc
from verifier_service.models.quantization import quantizer

TEXT = np.random.default_rng(0).integers(0, 256, 60).tolist()
TOKENS = 40
# Steps between two values of a weight, in parts of the span of those that share a scale.
STEPS = {"int8": 127.5, "int4": 15.0}

needs_torchao = pytest.mark.usefixtures("torchao")


@pytest.fixture(scope="module")
def torchao() -> Any:
    return pytest.importorskip("torchao", reason="the quant extra is not installed")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("target"))


def config_of(model: Path, quantization: str, **changed: Any) -> VerifierConfig:
    fields = {"kv_tokens": 1024, "row_budget": 32, "quantization": quantization} | changed
    return VerifierConfig(model=model, **fields)


def linears(model: Any) -> list[torch.nn.Linear]:
    return [module for module in model.model.modules() if isinstance(module, torch.nn.Linear)]


@needs_torchao
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("kind", STEPS)
def test_logits_are_those_of_weights_rounded_to_so_many_bits(
    kind: str, tied: bool, tmp_path: Path
) -> None:
    path = write_tiny(tmp_path, tie_word_embeddings=tied)
    config = config_of(path, kind, dtype="fp32")
    reference, stored = (
        AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32) for _ in "ab"
    )
    quantizer(config)(reference)
    with torch.inference_mode():
        for layer, before in zip(linears(reference), linears(stored), strict=True):
            rounded = layer(torch.eye(layer.in_features)).T.clone()
            span = before.weight.amax() - before.weight.amin()
            error = (rounded - before.weight).abs().max()
            assert 0 < error <= span / STEPS[kind]
            layer.weight = torch.nn.Parameter(rounded, requires_grad=False)
        expected = reference(torch.tensor([TEXT])).logits[0].numpy()
        unrounded = stored(torch.tensor([TEXT])).logits[0].numpy()
    assert torch.equal(reference.lm_head.weight, stored.lm_head.weight)
    model = load_target(config)
    found = model.forward([Segment(alloc(model, 60), 0, TEXT, 60)])
    np.testing.assert_allclose(found, expected, atol=5e-4)
    assert np.abs(found - unrounded).max() > 0.01


def decode(target: Any, temperature: float, guide: Sequence[int] = (), width: int = 1) -> list[int]:
    """Decode TOKENS tokens; a guide is drafted, `width` siblings for each of its tokens."""
    sampling = SamplingParams(temperature, seed=7)
    prompt = TEXT[:20]
    handle = target.open(opening(prompt, new=TOKENS + 16, draft=8, sampling=sampling))
    text, number = list(prompt), 0
    while len(text) < len(prompt) + TOKENS:
        at = len(text) - len(prompt)
        tokens = guide[at : at + 8 // width]
        draft = [(token + width - 1 - i) % 256 for token in tokens for i in range(width)]
        parents = [width * depth - 1 for depth in range(len(tokens)) for _ in range(width)]
        asked = round_after(text, draft, parents if width > 1 else (), number=number)
        target.submit(handle, asked)
        outcomes: list[Any] = []
        while not outcomes:
            outcomes = target.step()
        verdict = outcomes[0].result
        assert isinstance(verdict, Verdict)
        text += [*(draft[node] for node in verdict.kept), *verdict.next_tokens]
        number += 1
    target.close(handle)
    return text[len(prompt) :][:TOKENS]


@needs_torchao
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
@pytest.mark.parametrize("kind", STEPS)
def test_drafts_change_no_token_of_a_quantised_target(
    checkpoint: Path, kind: str, dtype: str
) -> None:
    target = load_engine(config_of(checkpoint, kind, dtype=dtype))
    if dtype == "bf16" and target.info.numerics != "exact":
        pytest.skip(f"bf16 has {target.info.numerics} on this CPU, enough for another token")
    for temperature in (0.0, 0.8):
        plain = decode(target, temperature)
        wrong_in_places = [t if i % 5 else (t + 1) % 256 for i, t in enumerate(plain)]
        assert decode(target, temperature, plain) == plain
        assert decode(target, temperature, wrong_in_places) == plain
        assert decode(target, temperature, wrong_in_places, width=2) == plain


@needs_torchao
def test_a_target_that_is_stored_compressed_is_quantised_from_what_it_expands_to() -> None:
    path, text = Path(model_path("models/embedded/target")), TEXT[:32]

    def logits(quantization: str) -> Any:
        model = load_target(config_of(path, quantization, dtype="fp32", forward="transformers"))
        return model.forward([Segment(alloc(model, 32), 0, text, 32)])

    plain, quantised = logits("none"), logits("int8")
    assert 0 < np.linalg.norm(quantised - plain) < 0.05 * np.linalg.norm(plain)


@needs_torchao
def test_replicas_that_compute_otherwise_have_other_weights(checkpoint: Path) -> None:
    ways = [(dtype, "none") for dtype in ("bf16", "fp16", "fp32")]
    ways += [(dtype, kind) for dtype in ("bf16", "fp32") for kind in STEPS]
    hashes = [
        load_target(config_of(checkpoint, kind, dtype=dtype)).info.weights_hash
        for dtype, kind in ways
    ]
    assert len(set(hashes)) == len(ways)
    again = load_target(config_of(checkpoint, "int8", dtype="bf16")).info.weights_hash
    assert again == hashes[ways.index(("bf16", "int8"))]


@pytest.mark.parametrize(
    ("kind", "changed", "match"),
    [
        ("int8", {"dtype": "fp16"}, "fp16"),
        ("int8", {"tensor_parallel": 2}, "one rank"),
        ("int4", {"dtype": "fp32", "device": "cuda"}, "bf16"),
    ],
)
def test_what_cannot_be_combined_is_refused(
    checkpoint: Path, kind: str, changed: dict[str, Any], match: str
) -> None:
    with pytest.raises(ConfigError, match=match) as refused:
        quantizer(config_of(checkpoint, kind, **changed))
    assert refused.value.param == "quantization"


def unread(folder: Path) -> Path:
    """Put weights that nobody can read into a folder, and return it."""
    (folder / "model.safetensors").write_bytes(b"none")
    return folder


@needs_torchao
@pytest.mark.parametrize(
    ("widths", "match"), [({"intermediate_size": 80}, "32"), ({"hidden_size": 72}, "32")]
)
def test_layers_that_do_not_fit_are_refused_before_weights_are_read(
    widths: dict[str, int], match: str, tmp_path: Path
) -> None:
    LlamaConfig(**SIZES | widths).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=match) as refused:
        load_target(config_of(unread(tmp_path), "int4"))
    assert refused.value.param == "quantization"


@needs_torchao
def test_int4_on_a_cpu_needs_outputs_of_its_kernel(tmp_path: Path) -> None:
    heads = {"head_dim": 40, "num_attention_heads": 4}
    LlamaConfig(**SIZES | heads).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="multiple of 16") as refused:
        load_target(config_of(unread(tmp_path), "int4"))
    assert refused.value.param == "quantization"


def test_a_mixture_of_experts_is_refused(tmp_path: Path) -> None:
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
    Qwen3MoeForCausalLM(Qwen3MoeConfig(**SIZES | experts)).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=r"layers\.0\.mlp\.\w+ is not a linear layer"):
        load_target(config_of(tmp_path, "int8"))


def test_without_torchao_the_extra_is_named(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = builtins.__import__

    def missing(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("torchao"):
            raise ImportError(f"No module named {name!r}")
        return found(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ConfigError, match=r"foredraft\[quant\]") as refused:
        load_target(config_of(checkpoint, "int8"))
    assert refused.value.param == "quantization"
