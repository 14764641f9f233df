"""The Llama family in bf16 as one call of compiled code (verifier/forward.inl).

A forward of a small model on a CPU is bound by its weights' way through memory and by the cost of
calling operations. So weights lie in the order of reading and are read once for all rows, and
nothing is called in between.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from foredraft_kernels.structs import LINE, HiddenStates
from verifier_service.models.attention.reference import KvShape
from verifier_service.models.compiled.panels import fits_panels
from verifier_service.models.compiled.segments import segments_of
from verifier_service.models.compiled.weights import NativeWeights
from verifier_service.models.fusion import FeatureFusion
from verifier_service.models.paged import Flat

if TYPE_CHECKING:
    import numpy.typing as npt

SUMS = "halves of a line"
"""The order of the compiled sums (foredraft_kernels/README.md): another one gives other tokens."""

_LAYERS = ("LlamaDecoderLayer", "MistralDecoderLayer", "Qwen2DecoderLayer")


class NativeForward:
    """A decoder of the Llama family that `fits_native`; caches are PanelCaches."""

    def __init__(
        self, weights: NativeWeights, kernels: ctypes.CDLL, isa: str, threads: int
    ) -> None:
        self._weights = weights
        self._run = getattr(kernels, f"fd_forward_{isa}")
        self._threads = threads

    def __call__(self, flat: Flat) -> npt.NDArray[np.float32]:
        return self._pass(flat, HiddenStates())

    def fused(
        self, flat: Flat, rows: Sequence[int], fusion: FeatureFusion
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.uint16]]:
        """Return logits, and a fusion's features of some rows (see FusingForward)."""
        logits, states = self.hidden_states(flat, rows, fusion.layer_ids)
        return logits, fusion.of_bits(states)

    def hidden_states(
        self, flat: Flat, rows: Sequence[int], layer_ids: Sequence[int]
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.uint16]]:
        """Return logits, and bf16 states' bits of some rows: [rows, layers x hidden].

        The states are those after layers that ascend; the last layer has none. Raise ValueError
        for rows or layers that are not there.
        """
        weights = self._weights
        if rows and not 0 <= min(rows) <= max(rows) < len(flat.tokens):
            raise ValueError("a row whose states are asked for is outside the batch")
        if list(layer_ids) != sorted({layer for layer in layer_ids if layer in weights.inner}):
            raise ValueError(f"no states after layers {layer_ids}")
        states = np.empty((len(rows), len(layer_ids) * weights.hidden), dtype=np.uint16)
        chosen, layers = array("i", rows), array("q", layer_ids)
        asked = HiddenStates(
            chosen.buffer_info()[0],
            len(rows),
            layers.buffer_info()[0],
            len(layer_ids),
            states.ctypes.data,
        )
        return self._pass(flat, asked), states

    def _pass(self, flat: Flat, asked: HiddenStates) -> npt.NDArray[np.float32]:
        weights, rows, wanted = self._weights, len(flat.tokens), len(flat.wanted)
        self._check(flat)
        segments, held = segments_of(flat.batch)
        tokens, chosen = array("i", flat.tokens), array("i", flat.wanted)
        logits = np.empty((wanted, weights.columns), dtype=np.float32)
        failed = self._run(
            weights.address,
            segments,
            len(flat.batch),
            tokens.buffer_info()[0],
            rows,
            chosen.buffer_info()[0],
            wanted,
            logits.ctypes.data,
            ctypes.addressof(asked),
            self._threads,
        )
        del held  # segments points into it
        if failed:
            raise MemoryError("the forward found no scratch memory")
        return logits[:, : weights.vocabulary]

    def batches(self, rows: int) -> Sequence[Sequence[int]]:
        """Return the largest pass, for the scratch memory."""
        return [[rows]]

    def _check(self, flat: Flat) -> None:
        """Raise ValueError for what would lead the kernel beyond its arrays."""
        weights, rows = self._weights, 0
        for segment in flat.batch:
            places = segment.positions or (segment.start, segment.start + segment.rows - 1)
            if segment.first != rows or not 0 <= min(places) <= max(places) < weights.positions:
                raise ValueError(f"{segment.start} + {segment.rows} rows at {segment.first}")
            rows += segment.rows
        if rows != len(flat.tokens) or not rows:
            raise ValueError(f"{len(flat.tokens)} tokens for {rows} rows")
        if min(flat.tokens) < 0 or max(flat.tokens) >= weights.vocabulary:
            raise ValueError("a token is outside the vocabulary")
        if flat.wanted and not 0 <= min(flat.wanted) <= max(flat.wanted) < rows:
            raise ValueError("a wanted row is outside the batch")


def fits_native(model: Any, shape: KvShape) -> bool:
    """Return whether the compiled forward computes a transformers model."""
    config = model.config
    layers = getattr(getattr(model, "model", None), "layers", [])
    kinds = {type(layer).__name__ for layer in layers}
    return (
        fits_panels(shape)
        and len(kinds) == 1
        and kinds <= set(_LAYERS)
        and config.hidden_act == "silu"
        and config.hidden_size % LINE == 0
        and config.intermediate_size % LINE == 0
        and model.lm_head.bias is None
    )
