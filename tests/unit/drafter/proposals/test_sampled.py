"""Drafts that are drawn from their own q: the draw has exactly the law that travels with it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from drafter_service.proposals.proposals import Drafted, coupled_path
from drafter_service.proposals.sampled import TOTAL, draw, quantise, sampled_path
from foredraft.limits import check_candidates
from foredraft.noise.streams import DRAFT, substream, uniform
from foredraft.types import Candidates, SamplingParams
from tests.support.drafters import EOS, scores_of

ROWS = [{1: 0.5, 2: 0.3, EOS: 0.2}, {3: 0.6, 4: 0.3, EOS: 0.1}, {5: 0.7, 6: 0.2, EOS: 0.1}]
EDGES = {(1, 1, 4): 2.0, (1, 2, 3): 1.0, (2, 4, 6): 9.0}
SCORES = scores_of(ROWS, EDGES)


def drafted(seed, temperature=1.0, count=2, most=64, prefix_len=7, **filters):
    sampling = SamplingParams(temperature, seed=seed, **filters)
    return sampled_path(SCORES, count, EOS, sampling, prefix_len, prefix_len, most)


def shares(candidates: Candidates) -> dict[int, float]:
    return {t: w / TOTAL for t, w in zip(candidates.tokens, candidates.weights, strict=True)}


def test_q_is_the_softmax_after_the_token_drawn_before():
    after_1 = np.array([0.3 * np.exp(2.0), 0.6, 0.1])
    for seed in range(20):
        block = drafted(seed)
        if block.tokens[0] == 1:
            break
    assert shares(block.q[0]) == pytest.approx({1: 0.5, 2: 0.3, EOS: 0.2}, abs=1 / TOTAL)
    expected = dict(zip((4, 3, EOS), after_1 / after_1.sum(), strict=True))
    assert shares(block.q[1]) == pytest.approx(expected, abs=1 / TOTAL)
    assert block.q[1].tokens == (4, 3, EOS)


def test_tokens_are_drawn_with_noise_of_their_own_prefix():
    for seed in range(50):
        block = drafted(seed)
        stream = substream(seed, DRAFT, 7)
        for slot, (token, (ids, weights)) in enumerate(zip(block.tokens, block.q, strict=True)):
            level = uniform(stream, 7 + slot) * TOTAL
            assert token == ids[int(np.searchsorted(np.cumsum(weights), int(level), "right"))]


@pytest.mark.parametrize(
    "filters", [{}, {"temperature": 0.6}, {"temperature": 2.0, "top_p": 0.9}, {"min_p": 0.3}]
)
def test_the_draws_have_the_law_that_travels(filters):
    draws = 4000
    blocks = [drafted(seed, **filters) for seed in range(draws)]
    first = Counter(block.tokens[0] for block in blocks)
    check_law(first, blocks[0].q[0])
    for token in (1, 2):
        following = [block for block in blocks if block.tokens[0] == token]
        if following:
            check_law(Counter(block.tokens[1] for block in following), following[0].q[1])
            assert len({block.q[1] for block in following}) == 1


def check_law(seen: Counter[int], q: Candidates) -> None:
    assert set(seen) <= set(q.tokens)
    if len(q.tokens) > 1:
        total = seen.total()
        expected = [total * w / TOTAL for w in q.weights]
        assert chisquare([seen[t] for t in q.tokens], expected).pvalue > 1e-4


def test_the_noise_is_not_the_targets():
    sampling = [SamplingParams(1.0, seed=seed) for seed in range(4000)]
    agree = sum(
        drafted(s.seed, count=1).tokens == coupled_path(SCORES, 1, EOS, s, 7).tokens
        for s in sampling
    )
    # Independent draws of one law agree as often as its squares say.
    expected = 0.5**2 + 0.3**2 + 0.2**2
    assert abs(agree / 4000 - expected) < 4 * np.sqrt(expected * (1 - expected) / 4000)


def test_draws_are_fresh_for_each_prefix():
    same = sum(
        drafted(s, count=1).tokens == drafted(s, count=1, prefix_len=8).tokens for s in range(2000)
    )
    assert 0.3 < same / 2000 < 0.46


def test_at_temperature_0_it_is_the_walk_over_the_edges_and_q_is_left_out():
    assert replace(drafted(3, temperature=0.0), expected=()) == Drafted((1, 4), 2, 6)


def test_the_guess_is_the_likeliest_and_a_path_ends_with_eos():
    for seed in range(60):
        block = drafted(seed)
        assert len(block.q) == len(block.tokens)
        if EOS in block.tokens:
            assert block.tokens[-1] == EOS and block.bonus_guess == -1
        else:
            assert block.bonus_guess == (6 if block.tokens[1] == 4 else 5)


def test_only_the_best_candidates_are_drawn():
    for seed in range(60):
        block = drafted(seed, most=2)
        assert all(len(q.tokens) == 2 for q in block.q)
        assert block.tokens[0] in (1, 2)
    assert {drafted(seed, most=1).tokens for seed in range(9)} == {(1, 4)}


LOGITS = st.lists(st.floats(-40, 40), min_size=1, max_size=64)


@given(LOGITS, st.integers(1, 64))
def test_weights_are_the_shares_of_the_best_to_less_than_one(values, most):
    logits = np.array(values)
    columns, weights = quantise(logits, most)
    best = np.sort(logits)[::-1][:most]
    p = np.exp(best - best[0])
    p /= p.sum()
    assert weights.sum() == TOTAL and weights.min() >= 1
    assert len(set(columns.tolist())) == len(columns) <= most
    assert (np.abs(weights - p[: len(weights)] * TOTAL) <= 1 + 1e-6).all() or len(columns) < len(p)


@given(st.lists(st.floats(-8, 8), min_size=1, max_size=12))
def test_each_outcome_of_the_noise_falls_to_a_weight(values):
    _, weights = quantise(np.array(values), 64)
    levels = (np.arange(0, TOTAL, 97) + 0.5) / TOTAL
    expected = np.repeat(np.arange(len(weights)), weights)[::97]
    assert [draw(weights, u) for u in levels] == expected.tolist()


@given(
    st.lists(LOGITS.filter(lambda row: len(row) > 2), min_size=1, max_size=4),
    st.integers(0, 2**64 - 1),
    st.floats(0.1, 3),
    st.floats(0.05, 1),
)
def test_what_travels_is_lawful(rows, seed, temperature, top_p):
    width = min(len(row) for row in rows)
    log_q = np.sort(np.array([row[:width] for row in rows]), axis=1)[:, ::-1]
    scores = scores_of([{t: 0.5 for t in range(width)} for _ in rows])
    scores = type(scores)(scores.tokens, log_q)
    sampling = SamplingParams(temperature, top_p=top_p, seed=seed)
    block = sampled_path(scores, len(rows), EOS, sampling, 3, 3, 64)
    check_candidates("q", block.q, block.tokens)
    assert {sum(q.weights) for q in block.q} == {TOTAL}
