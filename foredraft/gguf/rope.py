"""Rotary embeddings: transformers' `rope_parameters` of a GGUF file's fields."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from foredraft.errors import WeightsError
from foredraft.gguf.metadata import Metadata

FACTORS = "rope_freqs.weight"
_THETA = 10000.0
# Llama 3.1 and later: only the factor varies between the models.
_LOW, _HIGH, _CONTEXT = 1.0, 4.0, 8192


def rope_parameters(
    name: str, metadata: Metadata, head_dim: int, factors: np.ndarray | None
) -> dict[str, Any]:
    """Return the parameters of an architecture's rotary embeddings.

    factors (float32, head_dim / 2) are those of FACTORS, if the file has it: llama.cpp stores
    Llama 3's scaling so. Raise WeightsError for scaling of another kind.
    """
    theta = metadata.positive(f"{name}.rope.freq_base", _THETA)
    scaling = metadata.text(f"{name}.rope.scaling.type", "none")
    if factors is not None and not np.all(factors == 1):
        if scaling != "none":
            raise WeightsError(f"both {FACTORS} and {name}.rope.scaling.type scale positions")
        return {"rope_theta": theta} | _llama3(factors, theta, head_dim)
    if scaling == "none":
        return {"rope_theta": theta, "rope_type": "default"}
    factor = metadata.positive(f"{name}.rope.scaling.factor")
    found = {"rope_theta": theta, "rope_type": scaling, "factor": factor}
    if scaling == "linear":
        return found
    if scaling == "yarn":
        key = f"{name}.rope.scaling.original_context_length"
        return found | {"original_max_position_embeddings": metadata.integer(key, 1 << 30)}
    raise WeightsError(f"{name}.rope.scaling.type {scaling!r} is not supported")


def _llama3(factors: np.ndarray, theta: float, head_dim: int) -> dict[str, Any]:
    """Return Llama 3's scaling if these are its factors; raise WeightsError if they are not."""
    factor = round(float(factors.max()), 4)
    waves = 2 * math.pi * theta ** (np.arange(0, head_dim, 2) / head_dim)
    smooth = np.clip((_CONTEXT / waves - _LOW) / (_HIGH - _LOW), 0, 1)
    wanted = 1 / ((1 - smooth) / factor + smooth) if factor > 0 else np.zeros_like(waves)
    if factors.shape != wanted.shape or not np.allclose(factors, wanted, rtol=1e-4):
        raise WeightsError(f"{FACTORS} is not the scaling of Llama 3, the only one supported")
    return {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": _LOW,
        "high_freq_factor": _HIGH,
        "original_max_position_embeddings": _CONTEXT,
    }
