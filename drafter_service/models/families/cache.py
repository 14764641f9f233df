"""The keys and values of sessions' prefixes: held as tensors, reused as the network allows.

Tensors are [layers, 2, kv_heads, tokens, head_dim], keys first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from torch import Tensor

from drafter_service.models.families.attending import Part
from drafter_service.models.port import BlockRequest
from drafter_service.proposals.prefix_chain import common

_LEAST = 64


class ContextCache:
    """A tensor for each slot, which grows with its text; `empty` at the start."""

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


@dataclass(frozen=True, slots=True)
class Held:
    """What is known of a session's last pass: its text, and whose keys and values are cached.

    Those of the first `rows` tokens are. read_at is how long the text was when it was last read
    whole.
    """

    text: Sequence[int] = field(default=())
    rows: int = 0
    read_at: int = 0

    def cut(self, length: int) -> Held:
        """Return what of it still holds for a text that shares its first `length` tokens."""
        return replace(self, rows=min(self.rows, length), read_at=min(self.read_at, length))


@dataclass(frozen=True, slots=True)
class Reuse:
    """What a network may use of a text's cached keys and values instead of feeding it again.

    Of a network with attention blocks of `block` tokens, those that have ended: nothing after them
    changes them. One without (block is 0) uses all that it read, though what followed has changed
    it, and reads a text anew after `refresh` more tokens; with refresh 0 in every pass.
    """

    block: int
    refresh: int

    @property
    def prefix_kv(self) -> Literal["exact", "approximate", "none"]:
        """What it makes of the prefix (see Capabilities)."""
        return "exact" if self.block else "approximate" if self.refresh else "none"

    def start(self, held: Held, length: int, tentative: bool) -> int:
        """Return from which token on a text of `length` tokens is fed: before its last, always.

        held is of the same text, as far as it goes; tentative as in BlockRequest.
        """
        cached = min(held.rows, length - 1)
        if self.block:
            return cached // self.block * self.block
        stale = length - held.read_at >= self.refresh
        return 0 if stale and not tentative else cached

    def keeps(self, tentative: bool) -> bool:
        """Return whether what such a pass makes is kept.

        A drafted block is that of its text, whatever comes of it; else a pass is kept that saw
        committed tokens and masks alone.
        """
        return self.block > 0 or (self.refresh > 0 and not tentative)

    def rows(self, length: int) -> int:
        """Return of how many tokens, of a text of `length`, keys and values are kept."""
        return length // self.block * self.block if self.block else length


@dataclass(frozen=True, slots=True)
class Read:
    """One session's part of a pass: its whole text, and which of its rows are fed."""

    request: BlockRequest
    text: Sequence[int]
    read_at: int
    part: Part


class HeldPrefixes:
    """Finds what a pass need not feed, and keeps what it made.

    empty [layers, 2, kv_heads, 0, head_dim] are no keys and values; most bounds the cached tokens
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
