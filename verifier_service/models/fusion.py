"""A drafter's fusion, computed where the hidden states are: fc of their concatenation, and a norm.

So a token costs the wire one row of the drafter's width instead of one of the target's for each
layer.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors import safe_open

from foredraft.errors import WeightsError
from foredraft.features.fusion import WEIGHTS, Fusion, read_fusion
from foredraft.model_files import verify_files
from verifier_service.models.onednn_linear import pack_linears, packs

if TYPE_CHECKING:
    import numpy.typing as npt


class FeatureFusion(torch.nn.Module):
    """hidden_norm(fc(states)), the states of the fusion's layers side by side."""

    def __init__(self, fusion: Fusion, fc: torch.Tensor, hidden_norm: torch.Tensor) -> None:
        super().__init__()
        self.layer_ids, self.width, self.hash = fusion.layer_ids, fusion.width, fusion.hash
        self._eps = fusion.rms_eps
        self._fc = torch.nn.Linear(fc.shape[1], fc.shape[0], bias=False, device="meta")
        self._fc.weight = torch.nn.Parameter(fc, requires_grad=False)
        self._norm = hidden_norm

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Return features [rows, width] of states [rows, layers x hidden]."""
        mixed: torch.Tensor = self._fc(states)
        # As transformers norms: in fp32, with the weight applied in the model's own type.
        wide = mixed.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self._eps)
        return self._norm * wide.to(mixed.dtype)

    @torch.inference_mode()
    def of_bits(self, states: npt.NDArray[np.uint16]) -> npt.NDArray[np.uint16]:
        """Return the features of states, both as the bits of bfloat16 values."""
        wide = torch.from_numpy(states.view(np.int16)).view(torch.bfloat16)
        features: torch.Tensor = self(wide)
        return features.view(torch.int16).numpy().view(np.uint16)


def load_fusion(folder: Path, model: Any) -> FeatureFusion:
    """Return the fusion of a drafter's checkpoint for a target model of transformers.

    Raise WeightsError where the checkpoint has none, or one for another target.
    """
    verify_files(folder)
    fusion = read_fusion(folder)
    text = model.config.get_text_config()
    weights: dict[str, torch.Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt", device=str(model.device)) as stored:
            for name in set(WEIGHTS).intersection(stored.keys()):
                weights[name] = stored.get_tensor(name).to(model.dtype)
    fc, norm = (weights[name] for name in WEIGHTS)
    inputs = len(fusion.layer_ids) * text.hidden_size
    if fc.shape != (fusion.width, inputs) or norm.shape != (fusion.width,):
        raise WeightsError(
            f"{folder.name}'s fc.weight is {list(fc.shape)}; for this target it must be "
            f"{[fusion.width, inputs]}"
        )
    if not all(0 <= layer < text.num_hidden_layers for layer in fusion.layer_ids):
        raise WeightsError(
            f"{folder.name}'s target_layer_ids {list(fusion.layer_ids)} are not all among the "
            f"target's {text.num_hidden_layers} layers"
        )
    loaded = FeatureFusion(fusion, fc, norm)
    if packs(model.dtype, model.device):
        pack_linears(loaded)
    return loaded
