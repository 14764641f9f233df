"""Any-subset decoding: equal to sequential decoding, or in law, and never with more calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import chisquare

from bench.assd import algorithm_1
from bench.assd.algorithm_1 import Drafts, KeyedChance, rejection
from bench.assd.bigram import Bigrams
from bench.assd.port import sequential
from foredraft.layout import Layout
from foredraft.types import SamplingParams
from tests.support.law.tabular_any_subset import (
    VOCAB,
    TabularAnySubset,
    enumerated,
    exact_law,
    layouts,
)

SAMPLING = SamplingParams(temperature=0.8)
# With three tokens to generate.
LAYOUT, PROMPT = Layout(4, (2,)), [1]


def random_cases(count: int, length: int = 12) -> list[tuple[Layout, list[int], int]]:
    """Layouts, prompts for them, and seeds."""
    random, found = np.random.default_rng(0), []
    for seed in range(count):
        m = int(random.integers(1, length))
        given = tuple(sorted(random.choice(length, m, replace=False).tolist()))
        found.append((Layout(length, given), random.integers(0, VOCAB, m).tolist(), seed))
    return found


def furthest(
    layout: Layout,
    prompt: list[int],
    sampling: SamplingParams,
    k: int,
    drafts: Drafts | None = None,
) -> float:
    """How far the law of `rejection` is from the exact one, over all that chance can do."""
    model, law = TabularAnySubset(), exact_law(layout, prompt, sampling)
    found = enumerated(lambda path: rejection(model, layout, prompt, sampling, k, path, drafts))
    return max(abs(found.get(text, 0.0) - odds) for text, odds in law.items())


@pytest.mark.parametrize("k", [1, 2, 3, 5])
@pytest.mark.parametrize("layout", layouts(), ids=str)
def test_rejection_has_the_exact_law(layout: Layout, k: int) -> None:
    prompt = [at % VOCAB for at in layout.given]
    assert furthest(layout, prompt, SAMPLING, k) < 1e-12


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("layout", layouts(), ids=str)
def test_rejection_of_bigrams_has_the_exact_law(layout: Layout, k: int) -> None:
    prompt = [at % VOCAB for at in layout.given]
    assert furthest(layout, prompt, SAMPLING, k, Bigrams(VOCAB)) < 1e-12


class KeptUnverified(Bigrams):
    """As printed (l. 9-12): the last token, and here the first of each draft, is not verified."""

    certain = True


class Unnormalised(Bigrams):
    """Eq. 23 as printed, near enough: q is not what the tokens were drawn from."""

    def draft(self, *args):
        tokens, laws = super().draft(*args)
        others = laws * np.where(np.arange(VOCAB) == 0, 3, 1)
        return tokens, others / others.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("drafts", [KeptUnverified, Unnormalised])
def test_planted_bigrams_are_found(drafts: type[Bigrams]) -> None:
    assert furthest(LAYOUT, PROMPT, SAMPLING, 3, drafts(VOCAB)) > 1e-3


def test_bigrams_are_of_known_neighbours_alone() -> None:
    # Positions 0, 1 and 4 are known; nothing is known to follow position 1, nor to come before 4.
    layout, picked = Layout(5, (0, 1, 4)), []
    tokens, laws = Bigrams(VOCAB).draft(
        layout, [1, 2, 1], 2, SAMPLING, lambda order, law: picked.append(order) or 1
    )
    assert tokens == [1, 1] and picked == [3, 4]
    assert laws.sum(axis=1) == pytest.approx([1, 1]) and (laws > 0).all()
    # 2 was never seen before something, 1 before 2.
    unigrams = (np.array([0, 2, 1]) + 1 / VOCAB) / 4
    assert laws[0] == pytest.approx(unigrams)
    assert laws[1].argmax() == 2


def test_rejection_has_the_exact_law_of_filtered_rows() -> None:
    assert furthest(LAYOUT, PROMPT, SamplingParams(temperature=1.3, top_p=0.8), 3) < 1e-12


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("residual", lambda p, q: np.maximum(q - p, 0) + 1e-300),
        ("residual", lambda p, q: p),
        ("odds", lambda p, q, token: min(1.0, q[token] / p[token])),
    ],
    ids=["swapped residual", "residual of the target", "swapped odds"],
)
def test_planted_rules_are_found(
    monkeypatch: pytest.MonkeyPatch, name: str, fault: Callable[..., object]
) -> None:
    monkeypatch.setattr(algorithm_1, name, fault)
    assert furthest(LAYOUT, PROMPT, SAMPLING, 3) > 1e-3


def p_value(draws: int) -> float:
    """Of the texts of so many seeds against the exact law."""
    model, law = TabularAnySubset(), exact_law(LAYOUT, PROMPT, SAMPLING)
    texts = Counter(
        rejection(model, LAYOUT, PROMPT, SAMPLING, 3, KeyedChance(seed)).tokens
        for seed in range(draws)
    )
    counts = [texts[text] for text in law]
    return float(chisquare(counts, np.array(list(law.values())) * draws / sum(law.values())).pvalue)


def test_keyed_draws_have_the_law() -> None:
    assert p_value(4_000) > 1e-4


@pytest.mark.slow
def test_keyed_draws_have_the_law_at_100_000() -> None:
    assert p_value(100_000) > 1e-4


@pytest.mark.parametrize("k", [2, 5, 15])
def test_rejection_never_takes_more_calls_than_tokens(k: int) -> None:
    """Theorem 1."""
    for layout, prompt, seed in random_cases(60):
        model, chance = TabularAnySubset(), KeyedChance(seed)
        found = rejection(model, layout, prompt, SAMPLING, k, chance)
        assert found.calls == model.calls <= len(found.tokens) == layout.length - len(prompt)


def test_the_bound_on_calls_does_not_hold_for_drafts_of_one_token() -> None:
    found = rejection(TabularAnySubset(), LAYOUT, PROMPT, SAMPLING, 1, KeyedChance(0))
    assert found.calls == 2 * 3 - 1


def test_the_bound_on_calls_does_not_hold_for_bigrams() -> None:
    calls = [
        rejection(
            TabularAnySubset(), layout, prompt, SAMPLING, 3, KeyedChance(seed), Bigrams(VOCAB)
        )
        for layout, prompt, seed in random_cases(30)
    ]
    assert all(each.calls <= len(each.tokens) for each in calls)
    assert any(each.calls + each.auxiliary > len(each.tokens) for each in calls)


def test_at_temperature_0_rejection_is_greedy() -> None:
    for layout, prompt, seed in random_cases(20):
        model = TabularAnySubset()
        greedy = sequential(model, layout, prompt, SamplingParams()).tokens
        chance = KeyedChance(seed)
        assert rejection(model, layout, prompt, SamplingParams(), 4, chance).tokens == greedy


def test_logits_that_are_not_finite_are_refused() -> None:
    class Broken(TabularAnySubset):
        def logits(self, layout, content, queries):
            return np.full((len(queries), VOCAB), np.nan, np.float32)

    with pytest.raises(ValueError, match="finite"):
        sequential(Broken(), LAYOUT, PROMPT, SAMPLING)
    with pytest.raises(ValueError, match="finite"):
        rejection(Broken(), LAYOUT, PROMPT, SAMPLING, 2, KeyedChance(0))
