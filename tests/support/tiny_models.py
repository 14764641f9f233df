"""Tiny targets with random weights, written as checkpoints, and how logits are taken of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PretrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from verifier_service.models.paged import PagedModel
from verifier_service.models.port import Segment

SIZES = {
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "max_position_embeddings": 256,
    "initializer_range": 0.2,
}
KINDS: dict[str, tuple[type[PretrainedConfig], type[PreTrainedModel]]] = {
    "llama": (LlamaConfig, LlamaForCausalLM),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM),
}


def tiny(kind: str = "llama", seed: int = 0, **changes: Any) -> PreTrainedModel:
    """Return a model of random weights; changes are its configuration's, over SIZES."""
    torch.manual_seed(seed)
    make_config, make_model = KINDS[kind]
    return make_model(make_config(**SIZES | changes))


def write_tiny(folder: Path, kind: str = "llama", seed: int = 0, **changes: Any) -> Path:
    """Write a tiny model in the Hugging Face format; return its folder."""
    tiny(kind, seed, **changes).save_pretrained(folder)
    return folder


def own_logits(path: Path, text: Sequence[int], dtype: torch.dtype) -> np.ndarray:
    """Return the logits [tokens, vocabulary] that transformers computes of a text in one go."""
    model = AutoModelForCausalLM.from_pretrained(path, dtype=dtype)
    with torch.inference_mode():
        return np.asarray(model(torch.tensor([list(text)])).logits[0].float())


def in_chunks(
    model: PagedModel, blocks: Sequence[int], text: Sequence[int], size: int
) -> np.ndarray:
    """Return a text's logits [tokens, vocabulary], computed in passes of size rows."""
    cuts = range(0, len(text), size)
    chunks = [Segment(blocks, i, text[i : i + size], len(text[i : i + size])) for i in cuts]
    return np.concatenate([model.forward([chunk]) for chunk in chunks])
