"""Which of the written texts are trained on, and the tokens that the drafter's head scores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from foredraft_align.data.store import Store

OVERLAP = 13
"""A text that shares so many tokens in a row with an evaluation prompt is dropped."""
_COMMON = 5
"""An n-gram of more evaluation prompts than these is a phrase of their form."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Numbers of texts, and how many were dropped, and why."""

    train: tuple[int, ...]
    held_out: tuple[int, ...]
    duplicates: int
    overlaps: int
    empty: int


def ngrams(tokens: Sequence[int], n: int) -> set[tuple[int, ...]]:
    """Return a text's n-grams."""
    return {tuple(tokens[at : at + n]) for at in range(len(tokens) - n + 1)}


def of_evaluation(prompts: Iterable[Sequence[int]]) -> set[tuple[int, ...]]:
    """Return what tells evaluation prompts, as token ids, from other texts."""
    counts = Counter(gram for prompt in prompts for gram in ngrams(prompt, OVERLAP))
    return {gram for gram, count in counts.items() if count <= _COMMON}


def select(store: Store, forbidden: set[tuple[int, ...]], held_out: int, seed: int) -> Selection:
    """Return which texts to use: no text twice, none of evaluation, none whose answer is empty.

    held_out of them are kept from training.
    """
    seen: set[bytes] = set()
    kept: list[int] = []
    duplicates = overlaps = empty = 0
    for index in range(len(store)):
        tokens, answer, _ = store.tokens(index)
        digest = tokens.tobytes()
        if digest in seen:
            duplicates += 1
        elif len(tokens) - answer < 2:
            empty += 1
        elif forbidden and not forbidden.isdisjoint(ngrams(tokens.tolist(), OVERLAP)):
            overlaps += 1
        else:
            kept.append(index)
        seen.add(digest)
    order = np.random.default_rng(seed).permutation(kept).tolist()
    held_out = min(held_out, len(order) // 4)
    return Selection(
        tuple(sorted(order[held_out:])),
        tuple(sorted(order[:held_out])),
        duplicates,
        overlaps,
        empty,
    )


def shortlist(
    store: Store, chosen: Iterable[int], size: int, vocab_size: int, needed: Sequence[int]
) -> tuple[tuple[int, ...], float]:
    """Return the `size` most frequent tokens of the chosen texts' answers, ascending, and which
    share of those answers they cover.

    needed tokens are always among them. size 0, or one that no vocabulary has, means all.
    """
    counts = np.zeros(vocab_size, np.int64)
    for index in chosen:
        tokens, answer, _ = store.tokens(index)
        np.add.at(counts, tokens[answer:], 1)
    if not 0 < size < vocab_size:
        return tuple(range(vocab_size)), 1.0
    ranked = counts.copy()
    ranked[list(needed)] = counts.max() + 1
    found = np.argsort(-ranked, kind="stable")[:size]
    return tuple(sorted(found.tolist())), float(counts[found].sum() / max(1, counts.sum()))
