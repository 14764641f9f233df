"""Weights by name, put into a module that takes exactly those, and a target's embedding."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import torch
from safetensors import safe_open
from torch import Tensor, nn

from foredraft.model_files import verify_files

_EMBEDDING, _HEAD = "model.embed_tokens.weight", "lm_head.weight"

Network = TypeVar("Network", bound=nn.Module)


def assigned(build: Callable[[], Network], weights: Mapping[str, Tensor]) -> Network:
    """Return the module with these weights; raise ValueError for missing, unknown or misshapen."""
    with torch.device("meta"):
        model = build()
    expected = model.state_dict()
    missing, unknown = sorted(expected.keys() - weights), sorted(weights.keys() - expected)
    if missing or unknown:
        raise ValueError(f"missing weights {missing[:3]}, unknown weights {unknown[:3]}")
    for name, tensor in weights.items():
        if tensor.shape != expected[name].shape:
            raise ValueError(f"{name} is {list(tensor.shape)}, not {list(expected[name].shape)}")
    model.load_state_dict(weights, assign=True)
    return model.requires_grad_(False).eval()


def read_embedding(folder: Path, device: str) -> tuple[Tensor, Tensor]:
    """Return the embedding and the head [vocabulary, hidden] of a target's folder, as stored.

    Nothing else of its files is read. Raise ValueError where it has not both.
    """
    verify_files(folder)
    found: dict[str, Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt", device=device) as stored:
            for name in {_EMBEDDING, _HEAD}.intersection(stored.keys()):
                found[name] = stored.get_tensor(name)
    if json.loads((folder / "config.json").read_text()).get("tie_word_embeddings"):
        found[_HEAD] = found.get(_EMBEDDING, torch.empty(0))
    for name in (_EMBEDDING, _HEAD):
        if name not in found or not found[name].is_floating_point():
            raise ValueError(f"the target {folder.name} has no weights {name} of real numbers")
    return found[_EMBEDDING], found[_HEAD]
