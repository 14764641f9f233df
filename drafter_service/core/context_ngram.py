"""An n-gram model of the session's own prefix: text that repeats itself is drafted from itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from drafter_service.core.lattice import Floats, Ints, Lattice

if TYPE_CHECKING:
    from drafter_service.core.causal_scorer import BlockScorer, Path


class _Followers:
    """How often each token followed one context."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self.total = 0


class ContextNgram:
    """Interpolated counts of the last `window` tokens, updated token by token.

    p_o(w | context of o tokens) = (c(context, w) + a p_{o-1}(w)) / (c(context) + a), from the
    uniform distribution up to o = order - 1. Memory is bounded by order times window entries.
    """

    def __init__(
        self, vocab_size: int, order: int = 4, window: int = 4096, pseudocount: float = 0.5
    ) -> None:
        self._vocab_size, self._order = vocab_size, order
        self._window, self._pseudocount = window, pseudocount
        self._tables: list[dict[Path, _Followers]] = [{} for _ in range(order)]
        self._tokens: list[int] = []
        self._forgotten = 0

    def __len__(self) -> int:
        return len(self._tokens)

    def extend(self, tokens: Sequence[int]) -> None:
        """Count tokens as the continuation of what was counted; forget what leaves the window."""
        for token in tokens:
            self._tokens.append(token)
            self._count(len(self._tokens) - 1, 1)
        while len(self._tokens) - self._forgotten > self._window:
            self._count(self._forgotten, -1)
            self._forgotten += 1

    def truncate(self, length: int) -> None:
        """Uncount all but the first `length` tokens."""
        while len(self._tokens) > length:
            if len(self._tokens) > self._forgotten:
                self._count(len(self._tokens) - 1, -1)
            self._tokens.pop()
        self._forgotten = min(self._forgotten, length)

    def _count(self, at: int, change: int) -> None:
        """Add change to every n-gram that ends at index `at`."""
        tokens, token = self._tokens, self._tokens[at]
        for length in range(min(self._order, at + 1)):
            table, context = self._tables[length], tuple(tokens[at - length : at])
            followers = table.get(context)
            if followers is None:
                followers = table[context] = _Followers()
            count = followers.counts.get(token, 0) + change
            followers.total += change
            if count:
                followers.counts[token] = count
            else:
                del followers.counts[token]
                if not followers.total:
                    del table[context]

    def bind(self, lattice: Lattice, context: Sequence[int]) -> BlockScorer:
        """Return the scorer of one block after context, the end of what was counted."""
        tail = tuple(context[-(self._order - 1) :]) if self._order > 1 else ()
        floor = 1.0 / self._vocab_size
        return _BoundContext(self._tables, tail, lattice.tokens.tolist(), self._pseudocount, floor)


class _BoundContext:
    def __init__(
        self,
        tables: list[dict[Path, _Followers]],
        tail: Path,
        tokens: list[list[int]],
        pseudocount: float,
        floor: float,
    ) -> None:
        self._tables, self._tail = tables, tail
        self._pseudocount = pseudocount
        self._columns = [{token: i for i, token in enumerate(row)} for row in tokens]
        self._floors = [[floor] * len(row) for row in tokens]

    def step(self, slot: int, paths: Sequence[Path], parents: Ints) -> Floats:
        columns = self._columns[slot]
        everything = self._tables[0].get(())
        unigram = self._floors[slot]
        if everything is not None:
            unigram = self._mix(unigram, columns, [everything])
        return np.array(
            [self._mix(unigram, columns, self._followers(self._tail + path)) for path in paths]
        )

    def _followers(self, history: Path) -> list[_Followers]:
        """Return what followed the last 1, 2, ... tokens, as far as that was seen."""
        found = []
        for length in range(1, min(len(self._tables), len(history) + 1)):
            followers = self._tables[length].get(history[-length:])
            # A context that was never seen has no longer one that was.
            if followers is None:
                break
            found.append(followers)
        return found

    def _mix(
        self, lower: list[float], columns: dict[int, int], orders: list[_Followers]
    ) -> list[float]:
        """Return the probabilities with the orders, lowest first, interpolated over lower's."""
        if not orders:
            return lower
        left, added = 1.0, []
        for followers in reversed(orders):
            scale = left / (followers.total + self._pseudocount)
            left = scale * self._pseudocount
            counts = followers.counts
            # Most contexts have few followers, and fewer of those are candidates.
            added += [(columns[t], counts[t] * scale) for t in counts.keys() & columns.keys()]
        row = [left * p for p in lower]
        for column, mass in added:
            row[column] += mass
        return row
