"""An n-gram model of the session's own text: text that repeats itself is drafted from itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from drafter_service.core.lattice import Floats, Ints, Lattice

if TYPE_CHECKING:
    from drafter_service.core.causal_scorer import BlockScorer, Path


class ContextNgram:
    """Interpolated counts of the n-grams that end in the last `window` tokens of a text.

    p_o(w | context of o tokens) = (c(context, w) + a p_{o-1}(w)) / (c(context) + a), a being the
    pseudocount, from the uniform distribution up to o = order - 1.
    """

    def __init__(
        self, vocab_size: int, order: int = 4, window: int = 4096, pseudocount: float = 0.5
    ) -> None:
        self.vocab_size, self.order = vocab_size, order
        self.window, self.pseudocount = window, pseudocount

    def counted(self, context: Sequence[int]) -> Sequence[int]:
        """Return the end of context that matters: the window, and what its first n-gram needs."""
        return context[-(self.window + self.order - 1) :]

    def bind(self, lattice: Lattice, context: Sequence[int]) -> BlockScorer:
        """Return the scorer of one block after context."""
        return _BoundContext(self, lattice.tokens.tolist(), self.counted(context))


class _BoundContext:
    def __init__(
        self, model: ContextNgram, candidates: list[list[int]], text: Sequence[int]
    ) -> None:
        self._model, self._candidates, self._text = model, candidates, text
        self._tail = tuple(text[max(0, len(text) - model.order + 1) :])
        self._first = max(0, len(text) - model.window)
        self._unigram = Counter(text[self._first :])
        # Most tokens have few places, so what followed one of them is soon counted.
        self._places: dict[int, list[int]] = {}
        for place in range(max(0, self._first - 1), len(text) - 1):
            self._places.setdefault(text[place], []).append(place)

    def step(self, slot: int, paths: Sequence[Path], parents: Ints) -> Floats:
        candidates = self._candidates[slot]
        floor = [1.0 / self._model.vocab_size] * len(candidates)
        unigram = self._interpolated(floor, self._unigram, candidates)
        rows = []
        for path in paths:
            row = unigram
            for counts in self._followers(path):
                row = self._interpolated(row, counts, candidates)
            rows.append(row)
        return np.array(rows)

    def _interpolated(
        self, lower: list[float], counts: dict[int, int], candidates: list[int]
    ) -> list[float]:
        """Return p_o of the candidates from p_{o-1} and the counts of order o."""
        a = self._model.pseudocount
        total = sum(counts.values()) + a
        count = counts.get
        return [(count(t, 0) + a * p) / total for t, p in zip(candidates, lower, strict=True)]

    def _followers(self, path: Path) -> list[dict[int, int]]:
        """Return how often each token followed the last 1, 2, ... tokens, as far as any did."""
        history, text = (self._tail + path)[::-1][: self._model.order - 1], self._text
        found: list[dict[int, int]] = []
        for place in self._places.get(history[0], ()) if history else ():
            follower = text[place + 1]
            for length, token in enumerate(history):
                if length > place or text[place - length] != token:
                    break
                if length == len(found):
                    found.append({})
                found[length][follower] = found[length].get(follower, 0) + 1
        return found
