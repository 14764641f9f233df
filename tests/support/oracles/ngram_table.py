"""What an n-gram table says of the tokens after one context, as its layout is defined."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from drafter_service.proposals.proxies.ngram_table import FloatArray, IntArray, NgramTable


def score(
    table: NgramTable, context: Sequence[int], candidates: npt.NDArray[np.integer]
) -> FloatArray:
    """Return log p(w | last two tokens of context) for every candidate w; fp32, in the shape of
    `candidates`.

    A shorter context uses what there is. Raises IndexError for a candidate outside the
    vocabulary.
    """
    words = np.asarray(candidates, dtype=np.int64)
    scores: FloatArray = table.unigram[words]
    if len(context) >= 1:
        last = int(context[-1])
        start, end = int(table.bigram_offsets[last]), int(table.bigram_offsets[last + 1])
        scores = _refine(
            words,
            table.bigram_tokens[start:end],
            table.bigram_log_probs[start:end],
            scores + table.bigram_backoff[last],
        )
    if len(context) >= 2:
        key = int(context[-2]) * table.vocab_size + int(context[-1])
        index = int(np.searchsorted(table.trigram_keys, key))
        if index < len(table.trigram_keys) and table.trigram_keys[index] == key:
            start, end = int(table.trigram_offsets[index]), int(table.trigram_offsets[index + 1])
            scores = _refine(
                words,
                table.trigram_tokens[start:end],
                table.trigram_log_probs[start:end],
                scores + table.trigram_backoff[index],
            )
    return scores


def _refine(
    words: IntArray, tokens: npt.NDArray[np.uint16], log_probs: FloatArray, fallback: FloatArray
) -> FloatArray:
    """Replaces the fallback scores of the words that the context lists (`tokens` sorted)."""
    if not len(tokens):
        return fallback
    index = np.minimum(np.searchsorted(tokens, words), len(tokens) - 1)
    return np.where(tokens[index] == words, log_probs[index], fallback)
