"""KV slots and the flat batch: all rows of all segments as one sequence of tokens."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from verifier_service.model.attention import Caches, Kv, KvShape, Rows
from verifier_service.model.port import Segment

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from foredraft.types import ModelInfo


class Flat(NamedTuple):
    """The tokens of all sessions' rows, and, ascending, the rows whose logits are wanted."""

    tokens: list[int]
    wanted: list[int]
    batch: list[Rows]


class Forward(Protocol):
    """A model's arithmetic."""

    def __call__(self, flat: Flat) -> npt.NDArray[np.float32]:
        """Return logits [len(wanted), vocabulary]."""

    def sizes(self, rows: int) -> Sequence[int]:
        """Return the numbers of rows, up to `rows`, to run once before any session waits."""


class SlottedModel:
    """A TargetModel out of a forward over flat batches."""

    def __init__(
        self,
        forward: Forward,
        caches: Caches,
        shape: KvShape,
        info: ModelInfo,
    ) -> None:
        self.info = info
        self._forward = forward
        self._caches = caches
        self._shape = shape
        self._slots: dict[int, Kv] = {}
        self._names = itertools.count()

    def alloc(self, capacity: int) -> int:
        """Return a new slot with room for capacity tokens."""
        slot = next(self._names)
        self._slots[slot] = self._caches.alloc(self._shape, capacity)
        return slot

    def free(self, slot: int) -> None:
        """Give a slot and its memory back."""
        del self._slots[slot]

    def forward(self, segments: Sequence[Segment]) -> npt.NDArray[np.float32]:
        """Return the wanted rows' logits, segment after segment: float32 [rows, vocabulary]."""
        flat = Flat([], [], [])
        for slot, start, tokens, wanted, parents in segments:
            first, count = len(flat.tokens), len(tokens)
            flat.tokens.extend(tokens)
            flat.wanted.extend(range(first + count - wanted, first + count))
            flat.batch.append(Rows(self._slots[slot], start, first, count, parents))
        return self._forward(flat)

    def keep(self, slot: int, start: int, rows: Sequence[int]) -> None:
        """Move the KV of row start + rows[i] to row start + i; rows ascend."""
        self._caches.keep(self._slots[slot], start, rows)

    def warm_up(self, rows: int) -> None:
        """Run batches of up to rows rows, so that no session waits for a first time."""
        rows = min(rows, self.info.max_len)
        slot = self.alloc(rows)
        for size in self._forward.sizes(rows):
            self.forward([Segment(slot, 0, [0] * size, size)])
        self.free(slot)
