"""How a drafter's linear layers are computed: one strategy for each number format."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

Linear = Callable[[Tensor], Tensor]
"""x [rows, in] fp32 -> [rows, out], fp32 or narrower."""


class FloatLinear:
    """Weights and activations in the weight's dtype."""

    def __init__(self, weight: Tensor) -> None:
        self._weight = weight.contiguous()

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x.to(self._weight.dtype), self._weight)


class Int8Linear:
    """int8 weights, scaled per output channel, and dynamic int8 activations: half of bf16's time.

    Activations are scaled per tensor, so a row's numbers depend on its neighbours. That would break
    a verifier's promise; a drafter's numbers only decide how soon the target's tokens are found.
    """

    def __init__(self, weight: Tensor) -> None:
        weight = weight.float()
        scales = weight.abs().amax(dim=1).clamp(min=1e-8).double() / 127
        zeros = torch.zeros(len(scales), dtype=torch.int64)
        with warnings.catch_warnings():
            # torch announces that this moves to another package; it is pinned here until then.
            warnings.simplefilter("ignore", UserWarning)
            quantised = torch.quantize_per_channel(weight, scales, zeros, 0, torch.qint8)
        self._packed = torch.ops.quantized.linear_prepack(quantised, None)

    def __call__(self, x: Tensor) -> Tensor:
        out: Tensor = torch.ops.quantized.linear_dynamic(x, self._packed, False)
        return out
