"""Matrices as int8 rows: a code for each weight and a bf16 scale for each row.

Half of bf16's room. The names are those of the compressed-tensors format: NAME holds the codes,
NAME_scale the scales.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

SCALE = "_scale"
_LARGEST = 127


def to_int8_rows(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return matrices [rows, columns] as int8 codes with scales [rows, 1]; others as they are."""
    out: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if tensor.ndim != 2:
            out[name] = tensor
            continue
        largest = tensor.float().abs().amax(1, keepdim=True)
        scale = (largest / _LARGEST).clamp(min=1e-12).bfloat16()
        codes = (tensor.float() / scale.float()).round().clamp(-_LARGEST, _LARGEST)
        out[name], out[name + SCALE] = codes.to(torch.int8), scale
    return out


def from_int8_rows(stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return what `to_int8_rows` was given, rounded to its codes and then to bf16."""
    out: dict[str, Tensor] = {}
    for name, tensor in stored.items():
        if name.removesuffix(SCALE) in stored and name.endswith(SCALE):
            continue
        scale = stored.get(name + SCALE)
        out[name] = tensor if scale is None else (tensor.float() * scale.float()).bfloat16()
    return out
