"""Trains the path-search proxy: a Kneser-Ney model of the target's own text and the corpus, as an
n-gram table that needs numpy alone, and as an ARPA file for KenLM.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from drafter_service.proposals.proxies.ngram_table import NgramTable
from training.corpus.encoded import encoded
from training.corpus.tokenizer import EOS_ID
from training.embedded.generate import Continuations
from training.proxy.arpa import BackoffModel, Floats, Ints, Words
from training.proxy.kneser_ney import count_ngrams, estimate

LIMITS = (0, 1, 2)
"""n-grams of each order are kept if seen more often; chosen for a table below 1.5 MB."""
LN_10 = float(np.log(10))


def proxy_rows(shards: Path, data: Path, corpus_tokens: int, words: Words) -> list[Ints]:
    """The target's continuations, each after its prompt's last two tokens, and the texts in the
    first tokens of the core corpus, each after <s>.
    """
    rows: list[Ints] = []
    for path in sorted(shards.glob("[0-9]*[0-9].npz")):
        shard = Continuations.load(path)
        rows += list(shard.tokens[:, shard.prompt - 2 :].astype(np.int64))
    core = encoded(data, "core")[:corpus_tokens]
    return rows + split_texts(core.astype(np.int64), words)


def split_texts(stream: Ints, words: Words) -> list[Ints]:
    """The texts of a token stream, <s> before each; all but the last end with EOS."""
    ends = np.flatnonzero(stream == EOS_ID) + 1
    return [np.insert(text, 0, words.begin) for text in np.split(stream, ends) if len(text)]


def train_proxy(rows: list[Ints], words: Words, limits: Sequence[int] = LIMITS) -> BackoffModel:
    """Counts and smooths n-grams of as many orders as limits (see estimate)."""
    return estimate(count_ngrams(rows, words, len(limits)), words, limits)


def to_table(model: BackoffModel) -> NgramTable:
    """The model without <s>, </s> and <unk>. Raises ValueError unless it is of order 3, and for
    more tokens than the table's int32 keys can tell apart.
    """
    v, base = model.words.size, model.words.base
    if len(model.orders) != 3 or v * v > 1 << 31:
        raise ValueError(f"no table of order {len(model.orders)} over {v} tokens")
    unigrams, bigrams, trigrams = model.orders
    last, word = bigrams.keys // base, bigrams.keys % base
    pairs = (last < v) & (word < v)
    before, middle, third = (trigrams.keys // base**place % base for place in (2, 1, 0))
    triples = (before < v) & (middle < v) & (third < v)
    contexts, dense = np.unique(before[triples] * v + middle[triples], return_inverse=True)
    at, _ = bigrams.find(contexts // v * base + contexts % v)
    return NgramTable(
        unigram=_natural(unigrams.log_probs[:v]),
        bigram_offsets=np.searchsorted(last[pairs], np.arange(v + 1)).astype(np.int64),
        bigram_tokens=word[pairs].astype(np.uint16),
        bigram_log_probs=_natural(bigrams.log_probs[pairs]),
        bigram_backoff=_natural(unigrams.backoffs[:v]),
        trigram_keys=contexts,
        trigram_offsets=np.searchsorted(dense, np.arange(len(contexts) + 1)).astype(np.int64),
        trigram_tokens=third[triples].astype(np.uint16),
        trigram_log_probs=_natural(trigrams.log_probs[triples]),
        trigram_backoff=_natural(bigrams.backoffs[at]),
    )


def _natural(log10: Floats) -> npt.NDArray[np.float32]:
    return (log10 * LN_10).astype(np.float32)
