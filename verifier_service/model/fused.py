"""A target model that also tells a drafter's fused features of what it reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from verifier_service.model.fusion import FeatureFusion
from verifier_service.model.hf import TransformersForward
from verifier_service.model.paged import PagedModel
from verifier_service.model.port import Segment

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from verifier_service.model.attention import Caches


class FusedModel(PagedModel):
    """A FeatureModel: a PagedModel over transformers' forward, and a fusion."""

    def __init__(
        self, fusion: FeatureFusion, forward: TransformersForward, caches: Caches, **sizes: Any
    ) -> None:
        super().__init__(forward, caches, **sizes)
        self._fusion = fusion
        self._transformers = forward

    def forward_fused(
        self, segments: Sequence[Segment], rows: Sequence[int]
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.uint16]]:
        """Return forward's logits and the features of some rows (see FeatureModel)."""
        return self._transformers.fused(self.flat(segments), rows, self._fusion)
