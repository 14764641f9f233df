"""GGUF files of tiny models, written by the gguf package the way llama.cpp's converter does it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import PreTrainedModel

from tests.support.tiny_models import tiny
from tests.support.tokenizers_by_hand import BOOK

VOCABULARY = 384
CONTROLS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
USER_DEFINED = "<think>"
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['content'] }}<|im_end|>{% endfor %}"
SIZES = {"vocab_size": VOCABULARY, "bos_token_id": 1, "eos_token_id": 2}
_ARCHITECTURES = {
    "llama": gguf.MODEL_ARCH.LLAMA,
    "qwen2": gguf.MODEL_ARCH.QWEN2,
    "qwen3": gguf.MODEL_ARCH.QWEN3,
}


def tiny_model(kind: str, **changes: Any) -> PreTrainedModel:
    """Return a model of random weights that bfloat16 holds exactly."""
    model = tiny(kind, **SIZES | changes)
    for parameter in model.parameters():
        parameter.data = parameter.data.bfloat16().float()
    return model.eval()


@cache
def trained() -> Tokenizer:
    """Return a byte-level BPE of VOCABULARY tokens, special ones first."""
    tokenizer = Tokenizer(models.BPE())
    words: Any = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = words
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[*CONTROLS, USER_DEFINED],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([BOOK, *(f"{i * 37} word {i}" for i in range(99))], trainer)
    assert tokenizer.get_vocab_size() == VOCABULARY
    return tokenizer


def write_gguf(
    path: Path,
    model: PreTrainedModel,
    *,
    stored: GGMLQuantizationType = GGMLQuantizationType.F32,
    keys: Mapping[str, Any] | None = None,
    tensors: Mapping[str, np.ndarray | None] | None = None,
) -> Path:
    """Write a model and its tokenizer; return the path.

    Matrices are quantized, vectors are not. keys and tensors replace or add some; None leaves one
    out.
    """
    config = model.config
    kind = config.model_type
    writer = GGUFWriter(path, kind)
    for key, value in (_metadata(config, kind) | dict(keys or {})).items():
        _add(writer, key, value)
    names = gguf.get_tensor_name_map(_ARCHITECTURES[kind], config.num_hidden_layers)
    found: dict[str, np.ndarray | None] = {}
    for name, parameter in model.named_parameters():
        own = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert own is not None
        found[own] = _permuted(name, parameter.detach().numpy(), config)
    for name, values in (found | dict(tensors or {})).items():
        if values is None:
            continue
        if values.ndim == 2 and values.dtype == np.float32:
            writer.add_tensor(name, gguf.quants.quantize(values, stored), raw_dtype=stored)
        else:
            writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _permuted(name: str, values: np.ndarray, config: Any) -> np.ndarray:
    """Return q's and k's rows as llama.cpp's converter orders them, for Llama."""
    heads = {
        "q_proj.weight": config.num_attention_heads,
        "k_proj.weight": config.num_key_value_heads,
    }.get(".".join(name.split(".")[-2:]))
    if config.model_type != "llama" or heads is None:
        return np.ascontiguousarray(values)
    rows = values.reshape(heads, 2, len(values) // heads // 2, *values.shape[1:])
    return np.ascontiguousarray(rows.swapaxes(1, 2).reshape(values.shape))


def _metadata(config: Any, kind: str) -> dict[str, Any]:
    ids = trained().get_vocab()
    tokens = sorted(ids, key=ids.__getitem__)
    state = trained().to_str()
    merges = json.loads(state)["model"]["merges"]
    types = [3] * len(CONTROLS) + [4] + [1] * (len(tokens) - len(CONTROLS) - 1)
    return {
        "general.name": "tiny",
        f"{kind}.context_length": config.max_position_embeddings,
        f"{kind}.embedding_length": config.hidden_size,
        f"{kind}.block_count": config.num_hidden_layers,
        f"{kind}.feed_forward_length": config.intermediate_size,
        f"{kind}.attention.head_count": config.num_attention_heads,
        f"{kind}.attention.head_count_kv": config.num_key_value_heads,
        f"{kind}.attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        f"{kind}.attention.key_length": config.head_dim,
        f"{kind}.attention.value_length": config.head_dim,
        f"{kind}.rope.freq_base": float(config.rope_parameters["rope_theta"]),
        f"{kind}.rope.dimension_count": config.head_dim,
        f"{kind}.vocab_size": config.vocab_size,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": [" ".join(merge) for merge in merges],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.padding_token_id": 0,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": TEMPLATE,
    }


def _add(writer: GGUFWriter, key: str, value: Any) -> None:
    if value is None:
        return
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)
