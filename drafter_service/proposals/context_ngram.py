"""An n-gram model of the session's own text: text that repeats itself is drafted from itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from drafter_service.proposals.lattice import Floats, Ints, Lattice
from foredraft.ngram.index import NgramIndex

if TYPE_CHECKING:
    from drafter_service.proposals.causal_scorer import BlockScorer, Path


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

    def bind(self, lattice: Lattice, context: Sequence[int]) -> BlockScorer:
        """Return the scorer of one block after context."""
        return _BoundContext(self, lattice.tokens.tolist(), context)


class _BoundContext:
    def __init__(
        self, model: ContextNgram, candidates: list[list[int]], context: Sequence[int]
    ) -> None:
        self._model, self._candidates = model, candidates
        self._ngrams = NgramIndex(context, model.order - 1, model.window)
        self._unigram = Counter(context[-model.window :])

    def step(self, slot: int, paths: Sequence[Path], parents: Ints) -> Floats:
        candidates = self._candidates[slot]
        floor = [1.0 / self._model.vocab_size] * len(candidates)
        unigram = self._interpolated(floor, self._unigram, candidates)
        rows = []
        for path in paths:
            row = unigram
            for counts in self._ngrams.followers(path):
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
