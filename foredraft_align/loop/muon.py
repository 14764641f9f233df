"""Muon: momentum, orthogonalised by Newton and Schulz (Jordan et al. 2024).

torch's own does so in bf16 everywhere, which a CPU without bf16 instructions emulates.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from foredraft_align.loop.precision import product_dtype

_A, _B, _C = 3.4445, -4.775, 2.0315
_STEPS = 5


def orthogonalised(update: Tensor) -> Tensor:
    """Return a matrix with the update's singular vectors and singular values near 1."""
    x = (update / update.norm().clamp(min=1e-7)).to(product_dtype(update.device.type))
    tall = x.shape[0] > x.shape[1]
    if tall:
        x = x.T
    for _ in range(_STEPS):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=_B, alpha=_C), x, beta=_A)
    return (x.T if tall else x).float()


class Muon(torch.optim.Optimizer):
    """Muon with Nesterov momentum; an update has the size of one of AdamW (Liu et al. 2025)."""

    def __init__(
        self,
        matrices: Iterable[nn.Parameter],
        lr: float,
        weight_decay: float,
        momentum: float = 0.95,
    ) -> None:
        super().__init__(matrices, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Update all matrices by their gradients."""
        assert closure is None
        for group in self.param_groups:
            for matrix in group["params"]:
                state = self.state[matrix]
                if not state:
                    state["momentum"] = torch.zeros_like(matrix)
                momentum = state["momentum"].lerp_(matrix.grad, 1 - group["momentum"])
                update = orthogonalised(matrix.grad.lerp(momentum, group["momentum"]))
                size = 0.2 * max(matrix.shape) ** 0.5
                matrix.mul_(1 - group["lr"] * group["weight_decay"])
                matrix.add_(update, alpha=-group["lr"] * size)
