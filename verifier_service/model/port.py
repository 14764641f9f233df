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

    The logits of the last `wanted` rows are returned. If there are parents, the last len(parents)
    tokens are a draft tree (foredraft.tree) after the tokens before them: their KV rows follow each
    other all the same, but a node at depth d stands d positions behind the last token before the
    tree, sees its own branch alone, and has the logits, bit for bit, that end its branch as a path.
    """

    slot: int
    start: int
    tokens: Sequence[int]
    wanted: int
    parents: Sequence[int] = ()


class TargetModel(Protocol):
    """A causal language model with a KV cache in slots.

    There is no truncation: KV at and beyond a segment's start is overwritten, KV before it must
    have been written by earlier segments, and hold a text: of a tree, the branch that `keep` left.
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

    def keep(self, slot: int, start: int, rows: Sequence[int]) -> None:
        """Move the KV of row start + rows[i] to row start + i; rows ascend.

        With a tree's first row as start and a branch as rows, the slot's text goes on with it.
        """
