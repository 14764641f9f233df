"""KV of the sessions' texts, and the blocks in which drafted states are evaluated.

All states of a session stand at the same positions, after the same text, and must not see each
other: so each draft has a KV block of its own in place of the text's last one, with the text's rows
of that block copied into it. A state's own rows are of no use after the call, but for those of a
full one that comes true.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from verifier_service.kv.block_table import KvBlocks
from verifier_service.models.port import TargetModel


@dataclass(slots=True)
class _Drafts:
    """The drafts' own blocks: of the text's block `number` each holds so many first rows."""

    number: int = 0
    blocks: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)


class BlockKv:
    """Block tables of a model's sessions; keys name sessions."""

    def __init__(self, model: TargetModel, kv: KvBlocks) -> None:
        self._model, self._kv = model, kv
        self._drafts: dict[int, _Drafts] = {}

    def open(
        self, key: int, rows: int, drafts: int, salt: str = "", groups: Sequence[str] = ()
    ) -> None:
        """Reserve blocks for a text of so many rows and for drafts, as KvBlocks.reserve does."""
        self._kv.reserve(key, rows + drafts * self._model.block_tokens, salt, groups)
        self._drafts[key] = _Drafts()

    def close(self, key: int) -> None:
        """Free a session; a key that is not open is ignored."""
        drafts = self._drafts.pop(key, None)
        if drafts is not None:
            self._model.pool.give(drafts.blocks)
            self._kv.release(key)

    def adopt(self, key: int, text: Sequence[int], cached: int) -> int:
        """Attach other sessions' blocks that continue a text's KV; return the rows it has then."""
        return self._kv.adopt(key, text, cached)

    def table(self, key: int, rows: int) -> Sequence[int]:
        """Return a text's blocks, in order, for so many rows at least."""
        grown = self._kv.grow(key, rows)
        # Every session's worst case was reserved when it was opened.
        assert grown, "the reserved KV blocks are not there"
        return self._kv.table(key)

    def settle(self, key: int, text: Sequence[int], cached: int) -> None:
        """Take note that a text has KV in its first `cached` rows, and none beyond."""
        self._kv.settle(key, text, cached)

    def drafts(self, key: int, start: int, count: int) -> list[list[int]]:
        """Return a table for each of `count` drafts of the states at row `start` of a text.

        All rows before start must have been written by earlier calls.
        """
        held, size = self._drafts[key], self._model.block_tokens
        number, rows = divmod(start, size)
        if number != held.number:
            held.number, held.rows = number, [0] * len(held.blocks)
        if (missing := count - len(held.blocks)) > 0:
            taken = self._model.pool.take(missing)
            assert taken, "the reserved KV blocks are not there"
            held.blocks += taken
            held.rows += [0] * missing
        table = self._kv.table(key)
        for at in range(count):
            copied, block = held.rows[at], held.blocks[at]
            if copied < rows:
                # As in a text of two blocks, whose rows move from the second one to the first.
                moved = [size + row for row in range(rows - copied)]
                self._model.keep([block, table[number]], copied, moved)
                held.rows[at] = rows
        return [[*table[:number], block] for block in held.blocks[:count]]

    def has_room(self, start: int, rows: int) -> bool:
        """Return whether a draft's own block holds so many rows from row `start` of a text on."""
        return start % self._model.block_tokens + rows <= self._model.block_tokens

    def take(self, key: int, draft: int, start: int, rows: int) -> None:
        """Copy rows of a text, from `start` on, that the last call wrote into a draft's block."""
        size = self._model.block_tokens
        number, first = divmod(start, size)
        own, block = self._kv.table(key)[number], self._drafts[key].blocks[draft]
        self._model.keep([own, block], first, [size + row for row in range(rows)])
