"""What models of other kinds begin with: the embedded target's layers before it was grown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from training.embedded.target_model import TargetModel, load_target, sources


@torch.no_grad()
def started(target: Path, layers: int) -> TargetModel:
    """A network of the target's first `layers` layers before it was grown, with its embedding.

    Copies that growing added are left out: they do little, where they are. Raises ValueError where
    the target has fewer layers.
    """
    larger = load_target(target)
    if layers > larger.shape.layers:
        raise ValueError(f"layers: the target has {larger.shape.layers}, {layers} asked")
    network = TargetModel(replace(larger.shape, layers=layers), seed=0)
    network.embedding.load_state_dict(larger.embedding.state_dict())
    network.norm.load_state_dict(larger.norm.state_dict())
    copied = sources(layers, larger.shape.layers)
    for index in range(layers):
        original = larger.layers[copied.index(index)]
        network.layers[index].load_state_dict(original.state_dict())
    return network
