"""A drafter whose drafts are worth nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file


def with_random_weights(model: Path, folder: Path) -> Path:
    """A drafter of the same shape that has learned nothing."""
    for each in (model.name, "tokenizer"):
        shutil.copytree(model.parent / each, folder / each)
    torch.manual_seed(0)
    [file] = (folder / model.name).glob("*.safetensors")
    tensors = {
        name: (0.02 * torch.randn(tensor.shape)).to(tensor.dtype) if tensor.dim() > 1 else tensor
        for name, tensor in load_file(file).items()
    }
    save_file(tensors, file)
    return folder / model.name
