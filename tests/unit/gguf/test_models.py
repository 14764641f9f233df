"""A converted folder computes what transformers computes of the same GGUF file."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Type
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, GgufConfig, PreTrainedModel

from foredraft.gguf.convert import convert
from tests.support.gguf_files import VOCABULARY, tiny_model, write_gguf
from verifier_service.config import VerifierConfig
from verifier_service.load import load_target

TEXT = torch.tensor([[5, 3, 250, 7, 7, 383, 1, 90, 11, 64, 2, 300]])
TYPES = (Type.F32, Type.F16, Type.BF16, Type.Q8_0, Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1)
CASES = [("llama", each) for each in TYPES]
CASES += [(kind, each) for kind in ("qwen2", "qwen3") for each in (Type.F16, Type.Q8_0, Type.Q4_0)]


def ignored(done: int, total: int) -> None:
    """Progress that nobody looks at."""


def logits(model: PreTrainedModel) -> torch.Tensor:
    with torch.inference_mode():
        return model(TEXT).logits


def converted(file: Path) -> Any:
    folder = file.parent / "converted"
    convert(file, folder, ignored)
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


@pytest.mark.parametrize(("kind", "stored"), CASES, ids=lambda each: getattr(each, "name", each))
def test_logits_are_those_of_transformers_dequantized(
    tmp_path: Path, kind: str, stored: Type
) -> None:
    # transformers reads no head size of a Qwen3 file, and takes its own default.
    changes = {"head_dim": 128} if kind == "qwen3" else {}
    file = write_gguf(tmp_path / "tiny.gguf", tiny_model(kind, **changes), stored=stored)
    theirs = AutoModelForCausalLM.from_pretrained(
        tmp_path,
        gguf_file=file.name,
        dtype=torch.float32,
        quantization_config=GgufConfig(dequantize=True),
    )
    for parameter in theirs.parameters():
        parameter.data = parameter.data.bfloat16().float()
    torch.testing.assert_close(logits(converted(file)), logits(theirs), atol=1e-5, rtol=0)


@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
def test_the_model_that_was_written_comes_back(tmp_path: Path, kind: str, tied: bool) -> None:
    # A head size that is not the width divided by the heads.
    head_dim = 32 if kind == "qwen2" else 48
    model = tiny_model(kind, head_dim=head_dim, tie_word_embeddings=tied)
    back = converted(write_gguf(tmp_path / "tiny.gguf", model))
    assert back.config.tie_word_embeddings == tied
    assert torch.equal(logits(back), logits(model))
    stored = load_file(tmp_path / "converted" / "model.safetensors")
    assert {each.dtype for each in stored.values()} == {torch.bfloat16}
    assert ("lm_head.weight" in stored) is not tied


def llama3_factors(head_dim: int, theta: float, factor: float) -> np.ndarray:
    """Return what llama.cpp's converter stores of Llama 3's scaling."""
    found = []
    for i in range(0, head_dim, 2):
        wave = 2 * math.pi * theta ** (i / head_dim)
        smooth = (8192 / wave - 1) / 3
        middle = 1 / ((1 - smooth) / factor + smooth)
        found.append(1 if wave < 8192 / 4 else factor if wave > 8192 else middle)
    return np.array(found, np.float32)


def test_the_scaling_of_llama_3_is_found_in_its_factors(tmp_path: Path) -> None:
    rope = {
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    model = tiny_model("llama", rope_parameters=rope, max_position_embeddings=131072)
    factors = llama3_factors(32, 500000.0, 32.0)
    file = write_gguf(tmp_path / "tiny.gguf", model, tensors={"rope_freqs.weight": factors})
    back = converted(file)
    assert back.config.rope_parameters == rope
    assert torch.equal(logits(back), logits(model))


@pytest.mark.parametrize("kind", ["linear", "yarn"])
def test_scaled_positions_are_kept(tmp_path: Path, kind: str) -> None:
    keys: dict[str, Any] = {
        "qwen2.rope.scaling.type": kind,
        "qwen2.rope.scaling.factor": 4.0,
        "qwen2.rope.scaling.original_context_length": 64,
    }
    rope = {"rope_type": kind, "rope_theta": 10000.0, "factor": 4.0}
    if kind == "yarn":
        rope["original_max_position_embeddings"] = 64
    model = tiny_model("qwen2", rope_parameters=rope)
    back = converted(write_gguf(tmp_path / "tiny.gguf", model, keys=keys))
    assert torch.equal(logits(back), logits(model))


def test_the_verifier_serves_the_folder(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "tiny.gguf", tiny_model("llama"), stored=Type.Q8_0)
    convert(file, tmp_path / "folder", ignored)
    info = load_target(VerifierConfig(model=tmp_path / "folder")).info
    assert (info.vocab_size, info.max_len, info.eos_token_ids) == (VOCABULARY, 256, (2,))
    assert info.tokenizer_hash


def test_progress_counts_up_to_all_values(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "tiny.gguf", tiny_model("llama"))
    seen: list[tuple[int, int]] = []
    convert(file, tmp_path / "folder", lambda done, total: seen.append((done, total)))
    assert seen == sorted(seen) and seen[0][0] == 0 and seen[-1][0] == seen[-1][1]
