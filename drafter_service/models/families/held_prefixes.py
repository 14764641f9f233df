"""The sessions' prefixes that a family's drafter has cached, bounded by their tokens."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from drafter_service.models.families.attending import Part
from drafter_service.models.families.context_cache import ContextCache
from drafter_service.models.families.prefix_reuse import Held, Reuse
from drafter_service.models.port import BlockRequest
from drafter_service.proposals.prefix_chain import common


@dataclass(frozen=True, slots=True)
class Read:
    """One session's part of a pass: its whole text, and which of its rows are fed."""

    request: BlockRequest
    text: Sequence[int]
    read_at: int
    part: Part


class HeldPrefixes:
    """Finds what a pass need not feed, and keeps what it made.

    empty [layers, 2, kv_heads, 0, head_dim] are no keys and values. most bounds the cached tokens
    of all slots together: the least recent gives way, and is read anew when it is asked for.
    """

    def __init__(self, reuse: Reuse, empty: Tensor, most: int) -> None:
        self._reuse, self._most = reuse, most
        self._cache = ContextCache(empty)
        self._held: OrderedDict[int, Held] = OrderedDict()

    @property
    def tokens(self) -> int:
        """How many tokens are cached."""
        return sum(held.rows for held in self._held.values())

    def read(self, request: BlockRequest) -> Read:
        """Return what a pass is to feed for a request."""
        held = Held() if request.fresh else self._held.get(request.slot, Held())
        # A request does not repeat the tokens that its slot holds; all were in passes before.
        text = [*held.text[: request.start], *request.tokens]
        held = held.cut(common(held.text, text))
        start = self._reuse.start(held, len(text), request.tentative)
        cached = self._cache.get(request.slot, start)
        part = Part(start, len(text) + request.num_slots, cached)
        return Read(request, text, held.read_at if start else len(text), part)

    def keep(self, reads: Sequence[Read], made: Sequence[Tensor]) -> None:
        """Take over each part's keys and values [layers, 2, kv_heads, rows, head_dim] of a pass."""
        for read, new in zip(reads, made, strict=True):
            if not self._reuse.keeps(read.request.tentative):
                continue
            slot, start, rows = read.request.slot, read.part.start, self._reuse.rows(len(read.text))
            if rows > start:
                self._cache.put(slot, start, new[:, :, :, : rows - start])
            self._held[slot] = Held(read.text, rows, read.read_at)
            self._held.move_to_end(slot)
        for slot, held in self._held.items():
            if self.tokens <= self._most:
                break
            self._cache.drop(slot)
            self._held[slot] = Held(held.text)
