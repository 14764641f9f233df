"""KV slots and the flat batch: all rows of all segments as one sequence of tokens.

A library prepares its kernels anew for each number of rows it meets (oneDNN: 5 ms and 2 MB for a
small model), so batches are filled up to one of a few sizes, which `warm_up` prepares.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch

from foredraft.tree import depths
from verifier_service.model.attention import Attention, Kv, KvShape, Rows
from verifier_service.model.port import Segment

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from foredraft.types import ModelInfo


class Flat(NamedTuple):
    """tokens[i] stands at positions[i] of its session; wanted are the rows whose logits are.

    Filler rows at the end of tokens belong to no session: whatever they yield is not looked at.
    """

    tokens: list[int]
    positions: list[int]
    wanted: list[int]
    batch: list[Rows]


# Returns logits [len(wanted), vocabulary].
Forward = Callable[[Flat], torch.Tensor]


def filled(rows: int, least: int = 1) -> int:
    """Return the size of the batch that holds rows: exact while rounds are small, then coarser."""
    for limit, step in ((20, 1), (64, 8), (256, 32)):
        if rows <= limit:
            return max(least, -(-rows // step) * step)
    return -(-rows // 64) * 64


class SlottedModel:
    """A TargetModel out of a forward over flat batches of at least least_rows."""

    def __init__(
        self,
        forward: Forward,
        attention: Attention,
        shape: KvShape,
        info: ModelInfo,
        least_rows: int,
    ) -> None:
        self.info = info
        self._least_rows = least_rows
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
        for slot, start, tokens, wanted, parents in segments:
            first, count = len(flat.tokens), len(tokens)
            root = start + count - len(parents)
            flat.tokens.extend(tokens)
            flat.positions.extend(range(start, root))
            flat.positions.extend(root - 1 + depth for depth in depths(parents))
            flat.wanted.extend(range(first + count - wanted, first + count))
            flat.batch.append(Rows(self._slots[slot], start, first, count, parents))
        count, wanted = len(flat.tokens), len(flat.wanted)
        filler = filled(count, self._least_rows) - count
        flat.tokens.extend([0] * filler)
        flat.positions.extend([0] * filler)
        flat.wanted.extend([0] * (filled(max(wanted, 1), self._least_rows) - wanted))
        logits: npt.NDArray[np.float32] = self._forward(flat)[:wanted].float().cpu().numpy()
        return logits

    def keep(self, slot: int, start: int, rows: Sequence[int]) -> None:
        """Move the KV of row start + rows[i] to row start + i; rows ascend."""
        self._attention.keep(self._slots[slot], start, rows)

    def warm_up(self, rows: int) -> None:
        """Run a batch of every size up to rows, so that no session waits for a first time."""
        rows = min(rows, self.info.max_len)
        slot = self.alloc(rows)
        for size in sorted({min(filled(n), rows) for n in range(1, rows + 1)}):
            self.forward([Segment(slot, 0, [0] * size, size)])
        self.free(slot)
