"""KV slots and the flat batch: all rows of all segments as one sequence of tokens."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch

from verifier_service.model.attention import Attention, Kv, KvShape, Rows
from verifier_service.model.port import Segment

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from foredraft.types import ModelInfo


class Flat(NamedTuple):
    """tokens[i] stands at positions[i] of its session; wanted are the rows whose logits are."""

    tokens: list[int]
    positions: list[int]
    wanted: list[int]
    batch: list[Rows]


# Returns logits [len(wanted), vocabulary].
Forward = Callable[[Flat], torch.Tensor]


class SlottedModel:
    """A TargetModel out of a forward over flat batches."""

    def __init__(
        self, forward: Forward, attention: Attention, shape: KvShape, info: ModelInfo
    ) -> None:
        self.info = info
        self._forward = forward
        self._attention = attention
        self._shape = shape
        self._slots: dict[int, Kv] = {}
        self._names = itertools.count()

    def alloc(self, capacity: int) -> int:
        """Return a new slot with room for capacity tokens."""
        slot = next(self._names)
        self._slots[slot] = self._attention.alloc(self._shape, capacity)
        return slot

    def free(self, slot: int) -> None:
        """Give a slot and its memory back."""
        del self._slots[slot]

    @torch.inference_mode()
    def forward(self, segments: Sequence[Segment]) -> npt.NDArray[np.float32]:
        """Return the wanted rows' logits, segment after segment: float32 [rows, vocabulary]."""
        flat = Flat([], [], [], [])
        for slot, start, tokens, wanted in segments:
            first, count = len(flat.tokens), len(tokens)
            flat.tokens.extend(tokens)
            flat.positions.extend(range(start, start + count))
            flat.wanted.extend(range(first + count - wanted, first + count))
            flat.batch.append(Rows(self._slots[slot], start, first, count))
        logits: npt.NDArray[np.float32] = self._forward(flat).float().cpu().numpy()
        return logits
