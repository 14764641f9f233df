"""Linear layers in bf16 on a CPU, always on oneDNN's path and with weights packed once.

F.linear packs the weights anew at each call, and leaves oneDNN for tiny shapes, where a row's bits
then depend on how many rows there are.
"""

from __future__ import annotations

from typing import Any

import torch

# oneDNN lays weights out for a typical number of rows; the layout does not change the results.
_TYPICAL_ROWS = 16


class PackedLinear(torch.nn.Module):
    """x -> x W^T + b for linear layers of one input at once, their outputs side by side."""

    def __init__(self, *layers: torch.nn.Linear) -> None:
        super().__init__()
        weight = torch.cat([layer.weight.detach() for layer in layers])
        biases = [layer.bias.detach() for layer in layers if layer.bias is not None]
        self._bias = torch.cat(biases) if biases else None
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight, _TYPICAL_ROWS)
        self._run: Any = torch.ops.mkldnn._linear_pointwise.default

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return y [..., all outputs] of x [..., inputs]."""
        y: torch.Tensor = self._run(x, self._weight, self._bias, "none", [], "")
        return y


def packs(dtype: torch.dtype, device: torch.device) -> bool:
    """True where weights of this type can be packed on this machine."""
    return (
        dtype == torch.bfloat16
        and device.type == "cpu"
        and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    )


def pack_linears(model: torch.nn.Module) -> None:
    """Replace every linear layer of a model by a packed one, but for those that are quantised."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            # A quantised weight is a tensor of another type.
            if type(child) is torch.nn.Linear and type(child.weight) is torch.nn.Parameter:
                setattr(parent, name, PackedLinear(child))
