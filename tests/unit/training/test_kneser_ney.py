"""The smoothed model against the formulas, written down slowly."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
import pytest

from tests.support.oracles.backoff import log_probs
from training.proxy.arpa import BackoffModel, Ints, Words
from training.proxy.kneser_ney import FALLBACK, count_ngrams, discounts, estimate

WORDS = Words(12)
Gram = tuple[int, ...]


def corpus(seed: int, length: int) -> list[Ints]:
    """Three texts from their start, and two from their middle."""
    random = np.random.default_rng(seed)
    rows = [np.minimum(random.zipf(1.4, length), WORDS.size - 1).astype(np.int64) for _ in range(5)]
    return [np.insert(row, 0, WORDS.begin) if i < 3 else row for i, row in enumerate(rows)]


class Reference:
    """Chen and Goodman's Eq. 20-26, one n-gram at a time."""

    def __init__(self, rows: list[Ints], order: int, limits: list[int]) -> None:
        self.order, self.limits = order, limits
        self.seen: Counter[Gram] = Counter()
        before: dict[Gram, set[int | None]] = defaultdict(set)
        for row in rows:
            text = tuple(row.tolist())
            for start in range(len(text)):
                for end in range(start + 1, min(start + order, len(text)) + 1):
                    self.seen[text[start:end]] += 1
                    before[text[start:end]].add(text[start - 1] if start else None)
        del self.seen[(WORDS.begin,)]
        self.adjusted = {
            gram: count if len(gram) == order or gram[0] == WORDS.begin else len(before[gram])
            for gram, count in self.seen.items()
        }
        self.discount = {length: self.discounts(length) for length in range(1, order + 1)}

    def discounts(self, length: int) -> list[float]:
        times = Counter(count for gram, count in self.adjusted.items() if len(gram) == length)
        n1, n2, n3, n4 = (times[k] for k in (1, 2, 3, 4))
        if min(n1, n2, n3, n4) > 0:
            y = n1 / (n1 + 2 * n2)
            found = [1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3]
            if min(found) > 0:
                return found
        return list(FALLBACK)

    def taken(self, gram: Gram) -> float:
        return self.discount[len(gram)][min(self.adjusted[gram], 3) - 1]

    def listed(self, gram: Gram) -> bool:
        return self.seen[gram] > self.limits[len(gram) - 1]

    def p(self, word: int, context: Gram) -> float:
        followers = [
            gram for gram in self.adjusted if gram[:-1] == context and len(gram) == len(context) + 1
        ]
        shorter = self.p(word, context[1:]) if context else 1 / (WORDS.size + 2)
        if not followers:
            return shorter
        total = sum(self.adjusted[gram] for gram in followers)
        left = sum(
            self.taken(gram) if self.listed(gram) or not context else self.adjusted[gram]
            for gram in followers
        )
        gram = (*context, word)
        own = 0.0
        if gram in self.adjusted and (self.listed(gram) or not context):
            own = self.adjusted[gram] - self.taken(gram)
        return own / total + left / total * shorter


def grams(model: BackoffModel, length: int) -> list[Gram]:
    keys = model.orders[length - 1].keys.tolist()
    base = WORDS.base
    return [tuple(key // base**place % base for place in reversed(range(length))) for key in keys]


def model_of(rows: list[Ints], limits: list[int]) -> BackoffModel:
    return estimate(count_ngrams(rows, WORDS, len(limits)), WORDS, limits)


def probability(model: BackoffModel, word: int, context: Gram) -> float:
    return float(10 ** log_probs(model, [np.array([*context, word])])[-1])


CASES = [
    (0, 30, [0, 0, 0]),
    (1, 300, [0, 0, 0]),
    (2, 300, [0, 1, 2]),
    (3, 300, [0, 0]),
    (4, 200, [0, 0, 1, 1]),
    (5, 50, [0]),
    (6, 20, [0, 999, 999]),
]


@pytest.mark.parametrize(("seed", "length", "limits"), CASES)
def test_every_ngram_is_as_the_formulas_say(seed: int, length: int, limits: list[int]) -> None:
    rows = corpus(seed, length)
    model, reference = model_of(rows, limits), Reference(rows, len(limits), limits)
    for order in range(1, len(limits) + 1):
        listed = grams(model, order)
        if order > 1:
            expected = {g for g in reference.seen if len(g) == order and reference.listed(g)}
            assert len(listed) == len(expected) and set(listed) == expected
        found = dict(zip(listed, model.orders[order - 1].log_probs, strict=True))
        for gram, log_prob in found.items():
            if gram != (WORDS.begin,):
                p = reference.p(gram[-1], gram[:-1])
                assert log_prob == pytest.approx(np.log10(p), abs=1e-9), gram


@pytest.mark.parametrize(("seed", "length", "limits"), CASES)
def test_every_context_is_a_distribution(seed: int, length: int, limits: list[int]) -> None:
    rows = corpus(seed, length)
    model, reference = model_of(rows, limits), Reference(rows, len(limits), limits)
    predicted = [word for word in range(WORDS.count) if word != WORDS.begin]
    contexts = {gram[:-1] for gram in reference.seen} | {(11, 11, 11)}
    for context in sorted(contexts)[::3]:
        p = [probability(model, word, context) for word in predicted]
        assert sum(p) == pytest.approx(1.0, abs=1e-9)
        expected = [reference.p(word, context[-len(limits) :]) for word in predicted[::4]]
        assert p[::4] == pytest.approx(expected, abs=1e-9)


def test_discounts_of_counted_counts_and_of_degenerate_ones() -> None:
    adjusted = np.repeat([1, 2, 3, 4, 9], [40, 12, 6, 3, 2])
    y = 40 / 64
    expected = [0, y, 2 - 3 * y * 6 / 12, 3 - 4 * y * 3 / 6]
    assert discounts(adjusted) == pytest.approx(expected)
    assert discounts(adjusted[adjusted != 4]).tolist() == [0, *FALLBACK]
    negative = np.repeat([1, 2, 3, 4], [40, 1, 6, 3])
    assert discounts(negative).tolist() == [0, *FALLBACK]


def test_cases_cover_both_kinds_of_discounts() -> None:
    found = [
        discounts(count.adjusted).tolist() == [0, *FALLBACK]
        for seed, length, limits in CASES
        for count in count_ngrams(corpus(seed, length), WORDS, len(limits))[1:]
    ]
    assert any(found) and not all(found)


def test_limits_must_not_fall_and_keys_must_fit() -> None:
    counts = count_ngrams(corpus(0, 30), WORDS, 3)
    for limits in ([0, 2, 1], [0, 0], [1, 1, 1]):
        with pytest.raises(ValueError, match="limits"):
            estimate(counts, WORDS, limits)
    with pytest.raises(ValueError, match="do not fit"):
        count_ngrams([np.zeros(9, dtype=np.int64)], Words(150_000), 4)
