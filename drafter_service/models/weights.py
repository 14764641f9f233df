"""Weights by name, put into a module that takes exactly those."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import torch
from torch import Tensor, nn

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
