"""What of a text's cached keys and values a pass may use, instead of feeding the tokens again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol


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


class Reuse(Protocol):
    """One way to reuse a prefix."""

    @property
    def prefix_kv(self) -> Literal["exact", "approximate", "none"]:
        """What it makes of the prefix (see Capabilities)."""

    def start(self, held: Held, length: int, tentative: bool) -> int:
        """Return from which token on a text of `length` tokens is fed: before its last, always.

        held is of the same text, as far as it goes; tentative as in BlockRequest.
        """

    def keeps(self, tentative: bool) -> bool:
        """Return whether what such a pass makes is kept."""

    def rows(self, length: int) -> int:
        """Return of how many tokens, of a text of `length`, keys and values are kept."""


class Nothing:
    """The whole text is fed in every pass."""

    prefix_kv: Literal["none"] = "none"

    def start(self, held: Held, length: int, tentative: bool) -> int:
        """Return 0."""
        return 0

    def keeps(self, tentative: bool) -> bool:
        """Return False."""
        return False

    def rows(self, length: int) -> int:
        """Return 0."""
        return 0


@dataclass(frozen=True, slots=True)
class WholeBlocks:
    """Blocks of the text that have ended: nothing behind them changes them."""

    block: int
    prefix_kv: Literal["exact"] = "exact"

    def start(self, held: Held, length: int, tentative: bool) -> int:
        """Return where the block begins that the first token to feed is in."""
        return min(held.rows, length - 1) // self.block * self.block

    def keeps(self, tentative: bool) -> bool:
        """Return True: a drafted block is that of its text, whatever comes of it."""
        return True

    def rows(self, length: int) -> int:
        """Return how many tokens are in blocks that have ended."""
        return length // self.block * self.block


@dataclass(frozen=True, slots=True)
class Refreshed:
    """All that was read, though what followed has changed it; read anew every `every` tokens."""

    every: int
    prefix_kv: Literal["approximate"] = "approximate"

    def start(self, held: Held, length: int, tentative: bool) -> int:
        """Return the first token that is not cached, or 0 where it is time to read all anew."""
        if length - held.read_at >= self.every and not tentative:
            return 0
        return min(held.rows, length - 1)

    def keeps(self, tentative: bool) -> bool:
        """Return whether the pass saw committed tokens and masks alone."""
        return not tentative

    def rows(self, length: int) -> int:
        """Return all of them."""
        return length


def reuse(block: int, refresh: int) -> Reuse:
    """Return how a network of attention blocks of this length, 0 if none, reuses a prefix.

    refresh is for one without: it reads all anew after so many tokens more, 0 in every pass.
    """
    if block:
        return WholeBlocks(block)
    return Refreshed(refresh) if refresh else Nothing()
