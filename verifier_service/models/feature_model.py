"""A target model that also returns a drafter's fused features of its rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from verifier_service.models.fusion import FeatureFusion
from verifier_service.models.paged import Flat, Forward, PagedModel
from verifier_service.models.port import Segment

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from verifier_service.models.attention.reference import Caches


class FusingForward(Forward, Protocol):
    """A forward pass that also returns a fusion of its hidden states."""

    def fused(
        self, flat: Flat, rows: Sequence[int], fusion: FeatureFusion
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.uint16]]:
        """Return logits, and features of some rows: bfloat16's bits [rows, width]."""


class FusedModel(PagedModel):
    """A FeatureModel: a PagedModel and a fusion."""

    def __init__(
        self, fusion: FeatureFusion, forward: FusingForward, caches: Caches, **sizes: Any
    ) -> None:
        super().__init__(forward, caches, **sizes)
        self._fusion = fusion
        self._fusing = forward

    def forward_fused(
        self, segments: Sequence[Segment], rows: Sequence[int]
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.uint16]]:
        """Return forward's logits and the features of some rows (see FeatureModel)."""
        return self._fusing.fused(self.flat(segments), rows, self._fusion)
