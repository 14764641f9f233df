"""Checkpoints of known shapes with random weights, written in place: speed needs no knowledge."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, Qwen2Config

_SHARD_BYTES = 4 << 30


def _qwen2(layers: int, hidden: int, mixed: int, heads: int, kv_heads: int, vocabulary: int) -> Any:
    return Qwen2Config(
        vocab_size=vocabulary,
        hidden_size=hidden,
        intermediate_size=mixed,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=32768,
        rms_norm_eps=1e-6,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6},
        tie_word_embeddings=False,
    )


# The sizes in the config.json of Qwen/Qwen2.5-7B-Instruct and Qwen/Qwen2.5-32B-Instruct.
SHAPES = {
    "qwen2.5-7b": _qwen2(28, 3584, 18944, 28, 4, 152064),
    "qwen2.5-32b": _qwen2(64, 5120, 27648, 40, 8, 152064),
    "tiny": _qwen2(2, 64, 96, 4, 2, 512),
}


def write(folder: Path, shape: str, device: torch.device, shard_bytes: int = _SHARD_BYTES) -> None:
    """Write config.json and sharded bf16 safetensors of a shape; weights are drawn on the device.

    They are normal with a deviation of 0.02, and ones in the norms.
    """
    config = SHAPES[shape]
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    sizes = {name: tuple(weight.shape) for name, weight in model.state_dict().items()}
    shards = list(_shards(sizes, shard_bytes))
    places: dict[str, str] = {}
    for number, names in enumerate(shards, start=1):
        file = f"model-{number:05}-of-{len(shards):05}.safetensors"
        save_file(
            {name: _drawn(name, sizes[name], device) for name in names},
            folder / file,
            metadata={"format": "pt"},
        )
        places |= dict.fromkeys(names, file)
    total = sum(2 * math.prod(size) for size in sizes.values())
    index = {"metadata": {"total_size": total}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    model.config.save_pretrained(folder)


def _drawn(name: str, size: tuple[int, ...], device: torch.device) -> torch.Tensor:
    weight = torch.empty(size, dtype=torch.bfloat16, device=device)
    return (weight.fill_(1) if "norm" in name else weight.normal_(0, 0.02)).cpu()


def _shards(sizes: dict[str, tuple[int, ...]], most: int) -> Iterator[list[str]]:
    """Yield the names of tensors that follow each other and fit a file of `most` bytes."""
    names: list[str] = []
    held = 0
    for name, size in sizes.items():
        needed = 2 * math.prod(size)
        if names and held + needed > most:
            yield names
            names, held = [], 0
        names.append(name)
        held += needed
    yield names


def read_bytes(folder: Path) -> int:
    """Return how many bytes of a bf16 checkpoint every pass reads: all but the embeddings."""
    total = 0
    for file in folder.glob("*.safetensors"):
        with safe_open(file, "pt") as stored:
            for name in stored.keys():  # noqa: SIM118 - not a dict
                if "embed_tokens" not in name:
                    total += 2 * math.prod(stored.get_slice(name).get_shape())
    return total
