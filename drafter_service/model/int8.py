"""Dynamic int8 for a drafter: about half of bf16's time on a CPU with VNNI.

Activations are scaled per tensor, so a row's numbers depend on its neighbours. That would break a
verifier's promise; a drafter's numbers only decide how soon the target's tokens are found.
"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn

from drafter_service.model.block_causal import BlockCausalDLM


class Int8Linear(nn.Module):
    """A linear layer without bias: int8 weights per output channel, fp32 in and out."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        scales = weight.abs().amax(dim=1).clamp(min=1e-8).double() / 127
        zeros = torch.zeros(len(scales), dtype=torch.int64)
        with warnings.catch_warnings():
            # The replacement lives outside torch; until it is needed the notice is noise.
            warnings.simplefilter("ignore", UserWarning)
            quantised = torch.quantize_per_channel(weight.float(), scales, zeros, 0, torch.qint8)
        self._packed = torch.ops.quantized.linear_prepack(quantised, None)

    def forward(self, x: Tensor) -> Tensor:
        """x [rows, in] fp32 -> [rows, out] fp32."""
        out: Tensor = torch.ops.quantized.linear_dynamic(x, self._packed, False)
        return out


class Int8BlockCausalDLM(BlockCausalDLM):
    """BlockCausalDLM whose projections and output head run in int8."""

    head: Int8Linear

    def base_logits(self, hidden: Tensor) -> Tensor:
        """Logits [rows, vocab] of each slot by itself."""
        logits: Tensor = self.head(hidden)
        return logits


def to_int8(model: BlockCausalDLM) -> Int8BlockCausalDLM:
    """Return an fp32 model with projections and head in int8; model's layers are replaced too."""
    copy = Int8BlockCausalDLM.__new__(Int8BlockCausalDLM)
    copy.__dict__.update(model.__dict__)
    for layer in copy.layers:
        for name in ("qkv", "out", "gate_up", "down"):
            setattr(layer, name, Int8Linear(getattr(layer, name).weight))
    copy.head = Int8Linear(copy.embedding.weight)
    return copy
