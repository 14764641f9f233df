"""What the engine needs from a target model; adapters and scripted test models fit it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from foredraft.types import ModelInfo


class Segment(NamedTuple):
    """Consecutive tokens of one session: tokens[i] stands at position start + i of the slot's text.

    The logits of the last `wanted` rows are returned.
    """

    slot: int
    start: int
    tokens: Sequence[int]
    wanted: int


class TargetModel(Protocol):
    """A causal language model with a KV cache in slots.

    There is no truncation: KV at and beyond a segment's start is overwritten, KV before it must
    have been written by earlier segments.
    """

    @property
    def info(self) -> ModelInfo:
        """What the model is, as clients are told on open."""

    def alloc(self, capacity: int) -> int:
        """Return a new slot with room for capacity tokens."""

    def free(self, slot: int) -> None:
        """Give a slot and its memory back."""

    def forward(self, segments: Sequence[Segment]) -> npt.NDArray[np.float32]:
        """Return the wanted rows' logits, segment after segment: float32 [rows, vocabulary]."""
