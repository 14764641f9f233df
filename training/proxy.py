"""Trains the path-search proxy: an interpolated Kneser-Ney trigram table over the target's own text
and the corpus.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from drafter_service.core.ngram_table import NgramTable
from training.generate import Continuations

DISCOUNT = 0.75
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Order:
    """Distinct n-grams of one order: `context` id, `word`, discounted `count`, all sorted by
    (context, word).
    """

    context: Ints
    word: Ints
    count: Ints

    def probabilities(self, lower: Floats) -> tuple[Floats, Floats]:
        """Interpolated log p(w | context) of every n-gram, given p(w | shorter context) in `lower`;
        and counts' totals.
        """
        ids, inverse = np.unique(self.context, return_inverse=True)
        total = np.bincount(inverse, weights=self.count, minlength=len(ids))
        kinds = np.bincount(inverse, minlength=len(ids))
        share = np.maximum(self.count - DISCOUNT, 0) / total[inverse]
        left = DISCOUNT * kinds / total
        totals: Floats = total[inverse]
        return np.log(share + left[inverse] * lower), totals


def proxy_stream(shards: Path, data: Path, corpus_tokens: int) -> list[Ints]:
    """The target's continuations (each row by itself) and the first tokens of the core corpus."""
    rows: list[Ints] = []
    for path in sorted(shards.glob("[0-9]*[0-9].npz")):
        shard = Continuations.load(path)
        rows += list(shard.tokens[:, shard.prompt - 2 :].astype(np.int64))
    rows.append(np.load(data / "core.npy", mmap_mode="r")[:corpus_tokens].astype(np.int64))
    return rows


def train_proxy(
    rows: list[Ints], vocab: int, bigrams: int = 120_000, trigrams: int = 330_000
) -> NgramTable:
    """Counts, smooths, and keeps the n-grams that lower the cross-entropy most (about 3 MB)."""
    keys = np.concatenate([(row[:-2] * vocab + row[1:-1]) * vocab + row[2:] for row in rows])
    key, count = np.unique(keys, return_counts=True)
    tri = Order(key // vocab, key % vocab, count)
    key, count = np.unique(key % (vocab * vocab), return_counts=True)
    bi = Order(key // vocab, key % vocab, count)
    followers = np.bincount(bi.word, minlength=vocab) + 0.5
    unigram = followers / followers.sum()

    bi_log, _ = bi.probabilities(unigram[bi.word])
    kept_bi = _most_useful(bi, bi_log, np.log(unigram[bi.word]), bigrams)
    bi_backoff = _backoff(
        bi.context[kept_bi], np.exp(bi_log[kept_bi]), unigram[bi.word[kept_bi]], vocab
    )
    tri_in_bi = np.searchsorted(key, (tri.context % vocab) * vocab + tri.word)
    tri_log, _ = tri.probabilities(np.exp(bi_log[tri_in_bi]))
    is_kept = np.zeros(len(bi.word), dtype=bool)
    is_kept[kept_bi] = True
    backed_off = bi_backoff[tri.context % vocab] + np.log(unigram[tri.word])
    lower = np.where(is_kept[tri_in_bi], bi_log[tri_in_bi], backed_off)
    kept = _most_useful(tri, tri_log, lower, trigrams)
    contexts, dense = np.unique(tri.context[kept], return_inverse=True)
    tri_backoff = _backoff(dense, np.exp(tri_log[kept]), np.exp(lower[kept]), len(contexts))
    return NgramTable(
        unigram=np.log(unigram).astype(np.float32),
        bigram_offsets=_offsets(bi.context[kept_bi], vocab),
        bigram_tokens=bi.word[kept_bi].astype(np.uint16),
        bigram_log_probs=bi_log[kept_bi].astype(np.float32),
        bigram_backoff=bi_backoff.astype(np.float32),
        trigram_keys=contexts,
        trigram_offsets=_offsets(dense, len(contexts)),
        trigram_tokens=tri.word[kept].astype(np.uint16),
        trigram_log_probs=tri_log[kept].astype(np.float32),
        trigram_backoff=tri_backoff.astype(np.float32),
    )


def _most_useful(order: Order, log_probs: Floats, lower: Floats, keep: int) -> Ints:
    """Sorted indices of the `keep` n-grams with the largest count * (log p - log p of the shorter
    context).
    """
    gain = order.count * (log_probs - lower)
    keep = min(keep, len(gain))
    return np.sort(np.argpartition(-gain, keep - 1)[:keep])


def _backoff(context: Ints, kept: Floats, lower: Floats, contexts: int) -> Floats:
    """log of (mass not kept) / (mass that the shorter context gives to words that are not kept),
    per context.
    """
    left = np.maximum(1 - np.bincount(context, weights=kept, minlength=contexts), 1e-4)
    below = np.maximum(1 - np.bincount(context, weights=lower, minlength=contexts), 1e-4)
    return np.log(left / below)


def _offsets(context: Ints, contexts: int) -> Ints:
    """Start of every context's run in a sorted context column, and the end."""
    return np.searchsorted(context, np.arange(contexts + 1)).astype(np.int64)
