"""Several denoising passes over one block: what is fixed when, and what the next pass sees."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drafter_service.proposals.denoising import MASK, Denoiser, Pass, least_confidence
from drafter_service.proposals.lattice import NEVER
from drafter_service.proposals.proposals import argmax_path, log_odds
from foredraft.noise.gumbel import gumbel
from foredraft.types import SamplingParams
from tests.support.drafters import EOS, driven, scores_of, settled

GREEDY = SamplingParams()
TEXT = (7, 8)
FIRST = [{1: 0.5, 2: 0.4}, {3: 0.9, 4: 0.1}, {5: 0.6, 6: 0.4}, {7: 0.7, 8: 0.3}]
# What the model thinks once it has seen tokens in the block.
LATER = [{2: 0.8, 1: 0.2}, {4: 0.9, 3: 0.1}, {6: 0.7, 5: 0.3}, {8: 0.9, 7: 0.1}]


def answer(asked):
    rows = LATER if asked.filled else FIRST
    return settled(scores_of(rows[: asked.num_slots]), asked.filled)


def test_one_pass_asks_once():
    scores, asked = driven(Denoiser(1, GREEDY).denoise(TEXT, 3), answer)
    assert asked == [Pass(TEXT, 3)]
    assert scores.tokens[:, 0].tolist() == [1, 3, 5]


@pytest.mark.parametrize(
    ("steps", "filled", "tokens"),
    [
        (1, [()], [1, 3, 5, 7]),
        # The most confident half is kept, the rest is decided again.
        (2, [(), (MASK, 3, MASK, 7)], [2, 3, 6, 7]),
        (3, [(), (MASK, 3, MASK, 7), (2, 3, MASK, 7)], [2, 3, 6, 7]),
        (9, [(), (MASK, 3, MASK, MASK), (MASK, 3, MASK, 8), (2, 3, MASK, 8)], [2, 3, 6, 8]),
    ],
)
def test_the_most_confident_slots_are_fixed_first(steps, filled, tokens):
    scores, asked = driven(Denoiser(steps, GREEDY).denoise(TEXT, 4), answer)
    assert [a.filled for a in asked] == filled
    assert {a.text for a in asked} == {TEXT}
    assert argmax_path(scores, 4, EOS).tokens == tuple(tokens)


@given(st.integers(1, 12), st.integers(1, 9))
def test_slots_are_fixed_for_good_and_evenly(steps, slots):
    rng = np.random.default_rng(slots)

    def noisy(asked):
        confidence = rng.uniform(0.5, 1.0, slots)
        rows = [{int(t): c, 15: 1 - c} for t, c in enumerate(confidence, start=1)]
        return settled(scores_of(rows), asked.filled)

    scores, asked = driven(Denoiser(steps, GREEDY).denoise(TEXT, slots), noisy)
    assert len(asked) == min(steps, slots)
    states = [a.filled or (MASK,) * slots for a in asked]
    for before, after in itertools.pairwise(states):
        assert all(b in (MASK, a) for b, a in zip(before, after, strict=True))
    undecided = [state.count(MASK) for state in states]
    passes = len(asked)
    for done, (before, after) in enumerate(itertools.pairwise(undecided)):
        assert before - after == math.ceil(before / (passes - done))
    assert undecided[-1] >= 1
    fixed = [(slot, token) for slot, token in enumerate(states[-1]) if token != MASK]
    assert all(scores.tokens[slot, 0] == token for slot, token in fixed)


def test_above_temperature_0_what_the_targets_noise_favours_is_fixed():
    sampling = SamplingParams(temperature=1.0, seed=3)
    rows = [{t: 1 / 8 for t in range(1, 9)}] * 4
    noise = gumbel(3, np.arange(2, 6), np.arange(1, 9))
    flat = lambda asked: settled(scores_of(rows), asked.filled)  # noqa: E731
    _, asked = driven(Denoiser(2, sampling).denoise(TEXT, 4), flat)
    odds = np.exp(noise) / np.exp(noise).sum(1, keepdims=True)
    surest = set(np.argsort(-odds.max(1))[:2].tolist())
    expected = tuple(int(odds[slot].argmax()) + 1 if slot in surest else MASK for slot in range(4))
    assert asked[1].filled == expected


def test_confidence_follows_the_edges():
    edges = {(1, 1, 4): 3.0}
    scores = scores_of(FIRST[:2], edges)
    odds = [0.9, 0.1 * np.exp(3.0)]
    expected = [5 / 9, odds[1] / sum(odds)]
    columns = np.array([0, 1])
    assert np.exp(log_odds(scores, columns, GREEDY, 2)) == pytest.approx(expected)
    assert least_confidence(scores, (1, 4), GREEDY, 2) == pytest.approx(5 / 9)
    assert least_confidence(scores, (1, 3), GREEDY, 2) == pytest.approx(1 - expected[1])
    assert least_confidence(scores, (2, 4), GREEDY, 2) == pytest.approx(0.1)


def test_above_temperature_0_confidence_is_that_of_the_targets_draw():
    scores = scores_of(FIRST)
    columns = np.zeros(4, dtype=np.int64)
    one = SamplingParams(temperature=0.5, top_k=1, seed=3)
    assert log_odds(scores, columns, one, 2) == pytest.approx([0] * 4)
    assert (log_odds(scores, columns + 1, one, 2) == NEVER).all()
    both = SamplingParams(temperature=0.5, seed=3)
    first, second = (log_odds(scores, columns + c, both, 2) for c in (0, 1))
    assert np.exp(first) + np.exp(second) == pytest.approx([1] * 4)
    noise = gumbel(3, np.arange(2, 6), scores.tokens[:1])[0]
    assert first[0] - second[0] == pytest.approx(2 * np.log(5 / 4) + noise[0] - noise[1])


def test_what_is_fixed_is_the_walks_over_the_edges():
    rows = [{1: 0.99, 2: 0.01}, {3: 0.6, 4: 0.4}, {5: 0.5, 6: 0.5}]
    edges = {(1, 1, 4): 5.0}
    _, asked = driven(
        Denoiser(2, GREEDY).denoise(TEXT, 3),
        lambda asked: settled(scores_of(rows, edges), asked.filled),
    )
    assert asked[1].filled == (1, 4, MASK)
