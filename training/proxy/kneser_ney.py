"""Interpolated modified Kneser-Ney smoothing (Chen and Goodman 1998, "An empirical study of
smoothing techniques for language modeling", Sec. 3.2): from token rows to a backoff model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from training.proxy.arpa import NEVER, BackoffModel, Entries, Floats, Ints, Words, windows

FALLBACK = (0.5, 1.0, 1.5)
"""D1, D2, D3+ where the counts of counts give none, as KenLM's estimator has them."""


@dataclass(frozen=True)
class Counts:
    """The distinct n-grams of one order, sorted by key.

    `seen` is how often each occurs. `adjusted` is what it is smoothed by: the number of distinct
    words before it, the start of a row being one; as often as seen in the highest order and after
    <s>, which has no words before it.
    """

    keys: Ints
    seen: Ints
    adjusted: Ints


def count_ngrams(rows: list[Ints], words: Words, order: int) -> list[Counts]:
    """Counts of orders 1..order. A row may start with <s>, and then is a text from its start.

    Raises ValueError if the order is too high for the vocabulary (see windows).
    """
    keys, seen = np.unique(windows(rows, words, order), return_counts=True)
    neighbours = seen
    counts = []
    for length in range(order, 0, -1):
        place = words.base ** (length - 1)
        first = keys // place
        whole = first != words.nothing
        if length == 1:
            whole &= keys != words.begin
        adjusted = np.where(first == words.begin, seen, neighbours)
        counts.append(Counts(keys[whole], seen[whole], adjusted[whole]))
        if length > 1:
            keys, inverse, neighbours = np.unique(
                keys % place, return_inverse=True, return_counts=True
            )
            seen = np.bincount(inverse, weights=seen).astype(np.int64)
    return counts[::-1]


def discounts(adjusted: Ints) -> Floats:
    """0, D1, D2, D3+ (Eq. 26) from the numbers of n-grams counted once, twice, ... four times.

    FALLBACK where one of these is 0 or a discount is not above 0.
    """
    times = np.bincount(np.minimum(adjusted, 5), minlength=6)[1:5].astype(np.float64)
    if times.all():
        k = np.arange(1, 4)
        y = times[0] / (times[0] + 2 * times[1])
        found: Floats = k - (k + 1) * y * times[1:] / times[:3]
        if (found > 0).all():
            return np.array([0.0, *found])
    return np.array([0.0, *FALLBACK])


def are_limits(limits: Sequence[int]) -> bool:
    """Whether limits start with 0 and never fall: single words are all listed, and so are the parts
    of a listed n-gram.
    """
    return bool(limits) and limits[0] == 0 and list(limits) == sorted(limits)


def estimate(counts: list[Counts], words: Words, limits: Sequence[int]) -> BackoffModel:
    """The smoothed model; it lists the n-grams seen more often than their order's limit.

    p(w | h) = (a(h w) - D(a(h w))) / a(h .) + g(h) p(w | h without its first word), where g(h) is
    what the first terms of the listed n-grams leave; below single words is 1 / number of words.
    Raises ValueError for other limits than are_limits allows, one per order.
    """
    if len(limits) != len(counts) or not are_limits(limits):
        raise ValueError(
            f"expected {len(counts)} limits that start with 0 and never fall: {limits}"
        )
    orders = [_unigrams(counts[0], words)]
    for length in range(2, len(counts) + 1):
        below, count = orders[-1], counts[length - 1]
        keep = count.seen > limits[length - 1]
        contexts, inverse = np.unique(count.keys // words.base, return_inverse=True)
        totals = np.bincount(inverse, weights=count.adjusted)
        taken = discounts(count.adjusted)[np.minimum(count.adjusted, 3)]
        # Not 1 minus the rest: what is left may be far smaller than the rest's rounding.
        lost = np.bincount(inverse, weights=np.where(keep, taken, count.adjusted))
        left = lost / totals
        keys, inverse = count.keys[keep], inverse[keep]
        suffix, _ = below.find(keys % words.base ** (length - 1))
        share = (count.adjusted - taken)[keep] / totals[inverse]
        log_probs = np.log10(share + left[inverse] * 10 ** below.log_probs[suffix])
        at, known = below.find(contexts)
        below.backoffs[at[known]] = np.log10(left[known])
        orders.append(Entries(keys, log_probs, np.zeros(len(keys))))
    return BackoffModel(words, orders)


def _unigrams(count: Counts, words: Words) -> Entries:
    """Every word: its share of the distinct pairs, interpolated with the uniform distribution."""
    adjusted = np.zeros(words.count, dtype=np.int64)
    adjusted[count.keys] = count.adjusted
    taken = discounts(count.adjusted)[np.minimum(adjusted, 3)]
    # All but <s> can be predicted.
    uniform = 1 / (words.count - 1)
    log_probs = np.log10((adjusted - taken + taken.sum() * uniform) / adjusted.sum())
    log_probs[words.begin] = NEVER
    return Entries(np.arange(words.count), log_probs, np.zeros(words.count))
