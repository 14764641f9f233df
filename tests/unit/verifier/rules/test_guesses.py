"""The likeliest tokens of a row: those that it is drawn with come first."""

from __future__ import annotations

import numpy as np
import pytest

from foredraft.noise.gumbel import gumbel
from foredraft.types import SamplingParams
from verifier_service.models.compiled.sampling import best_guesses
from verifier_service.rules.guesses import likeliest
from verifier_service.rules.sampling import RowSampling, choose, process

WAYS = pytest.mark.parametrize("guesses", [likeliest, best_guesses()], ids=["torch", "compiled"])


def rows(count, vocabulary, seed=0, spread=3.0):
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((count, vocabulary)) * spread).astype(np.float32)


def scores(logits, draws):
    """By the definition, in double precision."""
    found = []
    for row, draw in zip(logits, draws, strict=True):
        sampling, position = draw
        if sampling.temperature == 0:
            found.append(row.astype(np.float64))
            continue
        noise = gumbel(sampling.seed, np.array([position]), np.arange(len(row)))[0]
        found.append(process(row[None].copy(), [draw])[0] + noise)
    return np.array(found)


@WAYS
@pytest.mark.parametrize("temperature", [0.0, 0.3, 1.0, 2.0])
@pytest.mark.parametrize("vocabulary", [5, 64, 1000, 4097])
@pytest.mark.parametrize("spread", [0.1, 3.0, 20.0])
def test_they_are_those_with_the_greatest_scores(guesses, temperature, vocabulary, spread):
    logits = rows(4, vocabulary, vocabulary, spread)
    draws = [RowSampling(SamplingParams(temperature, seed=3), 7 + row) for row in range(4)]
    expected = scores(logits, draws)
    for row, found in enumerate(guesses(logits, draws, 40)):
        assert len(found) == len(set(found)) == min(40, vocabulary)
        best = np.sort(expected[row])[::-1][: len(found)]
        np.testing.assert_allclose(expected[row][found], best, atol=1e-3)
    assert [row[0] for row in guesses(logits, draws, 3)] == choose(logits, draws)


@WAYS
def test_what_cannot_be_drawn_is_none_of_them(guesses):
    logits = rows(3, 50)
    logits[1, 10:] = -np.inf
    draws = [
        RowSampling(SamplingParams(1.0, top_k=2, seed=1), 1),
        RowSampling(SamplingParams(0.0), 2),
        RowSampling(SamplingParams(1.0, top_p=0.5, seed=1), 3),
    ]
    before = logits.copy()
    found = guesses(logits, draws, 20)
    assert (logits == before).all()
    assert set(found[0]) == set(np.argsort(-logits[0])[:2].tolist())
    assert found[1] == np.argsort(-logits[1])[:10].tolist()
    assert 0 < len(found[2]) < 20
    assert guesses(logits[:0], [], 20) == []
