"""The pool of KV blocks and the flat batch: all rows of all segments as one sequence of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from verifier_service.kv.block_pool import BlockPool
from verifier_service.models.attention.reference import Caches, KvShape, Rows
from verifier_service.models.port import Segment, TargetModel

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

    def batches(self, rows: int) -> Sequence[Sequence[int]]:
        """Return passes to run once before any session waits, as the rows of their sessions.

        A pass has at most `rows` rows in all.
        """


class PagedModel:
    """A TargetModel out of a forward over flat batches, with a pool for kv_tokens tokens.

    `passes` is that forward, which may be called with what `flat` returns.
    """

    def __init__(
        self,
        forward: Forward,
        caches: Caches,
        shape: KvShape,
        info: ModelInfo,
        *,
        kv_tokens: int,
        block_tokens: int,
        prefix_cache_tokens: int | None = None,
    ) -> None:
        self.info = info
        self.block_tokens = block_tokens
        idle = None if prefix_cache_tokens is None else prefix_cache_tokens // block_tokens
        self.pool = BlockPool(kv_tokens // block_tokens, idle)
        self.passes = forward
        self._caches = caches
        self._kv = caches.alloc(shape, self.pool.total, block_tokens)

    def forward(self, segments: Sequence[Segment]) -> npt.NDArray[np.float32]:
        """Return the wanted rows' logits, segment after segment: float32 [rows, vocabulary]."""
        return self.passes(self.flat(segments))

    def flat(self, segments: Sequence[Segment]) -> Flat:
        """Return the segments' rows as one batch."""
        flat = Flat([], [], [])
        for each in segments:
            first, count = len(flat.tokens), len(each.tokens)
            flat.tokens.extend(each.tokens)
            flat.wanted.extend(range(first + count - each.wanted, first + count))
            cache = self._kv, each.blocks, each.start
            seen = each.parents, each.mutual, each.positions
            flat.batch.append(Rows(*cache, first, count, *seen))
        return flat

    def keep(self, blocks: Sequence[int], start: int, rows: Sequence[int]) -> None:
        """Move the KV of row start + rows[i] to row start + i; rows ascend."""
        self._caches.keep(self._kv, blocks, start, rows)

    def batches(self, rows: int) -> Sequence[Sequence[int]]:
        """Return passes to run once before any session waits (see Forward)."""
        return self.passes.batches(rows)


def warm_up(model: TargetModel, batches: Sequence[Sequence[int]]) -> None:
    """Run passes of these rows of sessions, so that no session waits for a first time.

    Those that do not fit the pool are left out.
    """
    for batch in batches:
        needed = [-(-rows // model.block_tokens) for rows in batch]
        if sum(needed) > model.pool.available or max(batch) > model.info.max_len:
            continue
        tables = [model.pool.take(count) for count in needed]
        model.forward(
            [Segment(table, 0, [0] * rows, rows) for table, rows in zip(tables, batch, strict=True)]
        )
        for table in tables:
            model.pool.give(table)
