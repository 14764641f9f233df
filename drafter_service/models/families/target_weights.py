"""What a drafter without embedding and head reads of its target's checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from foredraft.model_files import verify_files

_EMBEDDING, _HEAD = "model.embed_tokens.weight", "lm_head.weight"


def read_target(folder: Path, dtype: torch.dtype, device: str) -> dict[str, Tensor]:
    """Return embed_tokens.weight and lm_head.weight [vocabulary, hidden] of a target's folder.

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
    return {
        "embed_tokens.weight": found[_EMBEDDING].to(dtype),
        "lm_head.weight": found[_HEAD].to(dtype),
    }
