"""Paper reproduction: a static n-gram table as the proxy of DiffuSpec Eq. 7."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from drafter_service.proposals.lattice import Floats, Ints, Lattice
from drafter_service.proposals.proxies.ngram_table import NgramTable

if TYPE_CHECKING:
    from drafter_service.proposals.causal_scorer import BlockScorer, Path


class StaticNgram:
    """log p(w | last two tokens) of many contexts at once, with backoff.

    The table's entries get global keys, context times V plus token, so that one sorted search
    answers a whole beam.
    """

    def __init__(self, table: NgramTable) -> None:
        v = table.vocab_size
        self.table = table
        self.bigram_keys = _entry_keys(table.bigram_offsets, table.bigram_tokens, v)
        self.trigram_keys = _entry_keys(table.trigram_offsets, table.trigram_tokens, v)

    def bind(self, lattice: Lattice, context: Sequence[int]) -> BlockScorer:
        """Return the scorer of one block; context needs its last two tokens."""
        return _BoundStatic(self, lattice.tokens, tuple(context[-2:]))

    def score(self, before: Ints, last: Ints, words: Ints) -> Floats:
        """Return log p [B, w] of words [w] after each pair (before [B], last [B]).

        before may be -1: then there is no token before the last one.
        """
        table, v = self.table, self.table.vocab_size
        scores = table.unigram[words] + table.bigram_backoff[last][:, None]
        scores = _refine(
            scores, self.bigram_keys, last[:, None] * v + words, table.bigram_log_probs
        )
        if len(table.trigram_keys):
            pair = before * v + last
            at = np.minimum(np.searchsorted(table.trigram_keys, pair), len(table.trigram_keys) - 1)
            known = table.trigram_keys[at] == pair
            if known.any():
                scores += np.where(known, table.trigram_backoff[at], 0.0)[:, None]
                # An unknown pair looks up keys that no entry has.
                keys = np.where(known, at * v, -v)[:, None] + words
                scores = _refine(scores, self.trigram_keys, keys, table.trigram_log_probs)
        return scores


class _BoundStatic:
    def __init__(self, model: StaticNgram, tokens: Ints, tail: Path) -> None:
        self._model, self._tokens = model, tokens
        self._tail = (-1,) * (2 - len(tail)) + tail

    def step(self, slot: int, paths: Sequence[Path], parents: Ints) -> Floats:
        pairs = np.array([(self._tail + path)[-2:] for path in paths], dtype=np.int64)
        return np.exp(self._model.score(pairs[:, 0], pairs[:, 1], self._tokens[slot]))


def _entry_keys(offsets: Ints, tokens: npt.NDArray[np.uint16], vocab_size: int) -> Ints:
    """Return each entry's global key, sorted: its context's index times V plus its token."""
    contexts = np.repeat(np.arange(len(offsets) - 1, dtype=np.int64), np.diff(offsets))
    return contexts * vocab_size + tokens


def _refine(scores: Floats, keys: Ints, wanted: Ints, log_probs: Floats) -> Floats:
    """Return scores with those of the wanted keys that are among keys replaced."""
    if not len(keys):
        return scores
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[at] == wanted, log_probs[at], scores)
