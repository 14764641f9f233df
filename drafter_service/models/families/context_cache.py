"""Keys and values of sessions' prefixes: a tensor for each slot, which grows with its text."""

from __future__ import annotations

from torch import Tensor

_LEAST = 64


class ContextCache:
    """Slots of [layers, 2, kv_heads, tokens, head_dim], keys first; `empty` at the start."""

    def __init__(self, empty: Tensor) -> None:
        self._empty = empty
        self._slots: dict[int, Tensor] = {}

    def put(self, slot: int, start: int, new: Tensor) -> None:
        """Make new what the slot holds from token `start` on; what is before stays."""
        end = start + new.shape[3]
        held = self._slots.get(slot, self._empty)
        if start == 0 or held.shape[3] < end:
            # Twice what is needed: a text grows by a few tokens at a time.
            size = list(new.shape)
            size[3] = max(_LEAST, 2 * end)
            grown = new.new_empty(size)
            grown[:, :, :, :start] = held[:, :, :, :start]
            self._slots[slot] = held = grown
        held[:, :, :, start:end] = new

    def drop(self, slot: int) -> None:
        """Free what the slot holds, if anything."""
        self._slots.pop(slot, None)

    def get(self, slot: int, end: int) -> Tensor:
        """Return what the slot holds of its first `end` tokens."""
        return self._slots.get(slot, self._empty)[:, :, :, :end]
