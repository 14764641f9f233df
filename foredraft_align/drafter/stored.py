"""A target's weights, read a tensor at a time."""

from __future__ import annotations

import json
from pathlib import Path

from safetensors import safe_open
from torch import Tensor

from foredraft.errors import WeightsError
from foredraft.model_files import eos_token_ids

PROJECTIONS = (
    *(f"self_attn.{each}_proj" for each in "qkvo"),
    *(f"mlp.{each}_proj" for each in ("gate", "up", "down")),
)
"""A Llama-shaped layer's matrices."""


def ends_of(target: Path) -> tuple[int, ...]:
    """Return the end tokens of a target's folder; raise WeightsError where it names none."""
    ends = eos_token_ids(target)
    if not ends:
        raise WeightsError("the target's files name no EOS: a drafter needs one")
    return ends


class StoredTarget:
    """The safetensors files of a target's folder."""

    def __init__(self, folder: Path) -> None:
        self._files: dict[str, Path] = {}
        for path in sorted(folder.glob("*.safetensors")):
            with safe_open(path, "pt") as stored:
                self._files |= dict.fromkeys(stored.keys(), path)
        raw = json.loads((folder / "config.json").read_text())
        self.num_layers = int(raw["num_hidden_layers"])
        self.num_kv_heads = int(raw.get("num_key_value_heads") or raw["num_attention_heads"])

    def has(self, name: str) -> bool:
        """Return whether there is a tensor of that name."""
        return name in self._files

    def tensor(self, name: str) -> Tensor:
        """Return a tensor in fp32; raise WeightsError where there is none."""
        if name not in self._files:
            raise WeightsError(f"the target has no weights {name}")
        with safe_open(self._files[name], "pt") as stored:
            return stored.get_tensor(name).float()

    def matrix(self, name: str) -> Tensor | None:
        """Return a projection's weight [out, in] in fp32.

        None where it is stored in another way than as a matrix and a scale for each row.
        """
        if not self.has(f"{name}.weight"):
            return None
        weight = self.tensor(f"{name}.weight")
        if not self.has(f"{name}.weight_scale"):
            return weight
        scale = self.tensor(f"{name}.weight_scale")
        return weight * scale if scale.shape in {(), (1,), (len(weight), 1)} else None

    def projections(self, layer: int) -> dict[str, Tensor] | None:
        """Return a layer's matrices by PROJECTIONS' names, None where one is missing or packed."""
        found = {name: self.matrix(f"model.layers.{layer}.{name}") for name in PROJECTIONS}
        whole = {name: matrix for name, matrix in found.items() if matrix is not None}
        return whole if len(whole) == len(found) else None
