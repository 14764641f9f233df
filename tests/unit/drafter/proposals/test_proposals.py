from dataclasses import replace

import numpy as np
import pytest

from drafter_service.proposals.causal_scorer import Uniform
from drafter_service.proposals.lattice import NEVER
from drafter_service.proposals.path_search import BeamSearch, SearchParams
from drafter_service.proposals.proposals import (
    Drafted,
    argmax_path,
    coupled_path,
    cps_path,
    process,
    shared_noise,
)
from foredraft.noise.gumbel import gumbel
from foredraft.types import SamplingParams
from tests.support.drafters import EOS, scores_of

GREEDY = SamplingParams()
ROWS = [{1: 0.6, 2: 0.4, EOS: 1e-9}, {3: 0.5, 4: 0.4, EOS: 1e-9}, {5: 0.9, 6: 0.1, EOS: 1e-9}]
EDGES = {(1, 1, 4): 3.0, (2, 4, 6): 9.0}


def test_argmax_takes_each_slot_by_itself_and_the_last_is_the_guess():
    assert argmax_path(scores_of(ROWS, EDGES), 2, EOS) == Drafted((1, 3), 2, 5)


def test_coupled_at_temperature_0_walks_the_edges():
    path = coupled_path(scores_of(ROWS, EDGES), 2, EOS, GREEDY, position=9)
    assert without_estimates(path) == Drafted((1, 4), 2, 6)


def test_cps_without_a_proxy_is_argmax_at_temperature_0():
    search = BeamSearch(Uniform(), SearchParams(weight=1.0))
    path = cps_path(scores_of(ROWS), 2, EOS, GREEDY, (7,), search)
    assert without_estimates(path) == Drafted((1, 3), 2, 5)


@pytest.mark.parametrize("strategy", ["argmax", "coupled", "cps"])
def test_a_block_ends_with_its_first_eos_and_has_no_guess(strategy):
    scores = scores_of([{1: 0.9, EOS: 0.1}, {EOS: 0.9, 2: 0.1}, {3: 0.9, EOS: 0.1}])
    assert propose(strategy, scores, 2) == Drafted((1, EOS), 1, -1)


@pytest.mark.parametrize("strategy", ["argmax", "coupled", "cps"])
def test_eos_can_be_the_guess(strategy):
    scores = scores_of([{1: 0.9, EOS: 0.1}, {2: 0.9, EOS: 0.1}, {EOS: 0.9, 3: 0.1}])
    assert propose(strategy, scores, 2) == Drafted((1, 2), 2, EOS)


@pytest.mark.parametrize("strategy", ["coupled", "cps"])
def test_a_path_has_the_probabilities_of_its_beginnings(strategy):
    scores = scores_of([{1: 0.9, 3: 0.1}, {2: 0.6, 3: 0.4}, {4: 0.5, 3: 0.5}])
    search = BeamSearch(Uniform(), SearchParams(weight=1.0))
    path = (
        coupled_path(scores, 2, EOS, GREEDY, 1)
        if strategy == "coupled"
        else cps_path(scores, 2, EOS, GREEDY, (7,), search)
    )
    assert path.expected == pytest.approx((0.9, 0.54), abs=1e-3)


def propose(strategy, scores, count):
    if strategy == "argmax":
        return argmax_path(scores, count, EOS)
    if strategy == "coupled":
        return without_estimates(coupled_path(scores, count, EOS, GREEDY, 1))
    search = BeamSearch(Uniform(), SearchParams(weight=1.0))
    return without_estimates(cps_path(scores, count, EOS, GREEDY, (7,), search))


def without_estimates(drafted):
    return replace(drafted, expected=())


def test_coupled_draws_with_the_noise_of_seed_position_and_token():
    sampling = SamplingParams(temperature=0.7, seed=11)
    scores = scores_of([{t: 1 / 12 for t in range(1, 12)} | {EOS: 1e-9}] * 3)
    path = coupled_path(scores, 2, EOS, sampling, position=20)
    noise = gumbel(11, np.arange(20, 23), np.arange(1, 12))
    expected = (noise.argmax(axis=1) + 1).tolist()
    assert [*path.tokens, path.bonus_guess] == expected
    assert path == coupled_path(scores, 2, EOS, sampling, position=20)


def test_cps_at_temperature_shares_the_noise():
    sampling = SamplingParams(temperature=1.0, seed=5)
    scores = scores_of([{1: 0.5, 2: 0.5 - 1e-9, EOS: 1e-9}] * 5)
    context = (1, 2, 3)
    search = BeamSearch(Uniform(), SearchParams(1.0, 15, 1.0, 8))
    path = cps_path(scores, 4, EOS, sampling, context, search)
    expected = shared_noise(scores, sampling, 3)[:, :2].argmax(axis=1)
    assert [*path.tokens, path.bonus_guess] == [int(scores.tokens[0, c]) for c in expected]


@pytest.mark.parametrize(
    ("sampling", "kept"),
    [
        (SamplingParams(temperature=1.0), [1, 1, 1, 1]),
        (SamplingParams(temperature=1.0, top_k=2), [1, 1, 0, 0]),
        (SamplingParams(temperature=1.0, top_p=0.7), [1, 1, 0, 0]),
        (SamplingParams(temperature=1.0, min_p=0.3), [1, 1, 0, 0]),
        (SamplingParams(temperature=1.0, top_p=0.01), [1, 0, 0, 0]),
        (SamplingParams(temperature=0.0, top_k=1), [1, 1, 1, 1]),
    ],
)
def test_process_filters_like_the_target(sampling, kept):
    logits = np.log(np.array([0.5, 0.3, 0.14, 0.06]))
    assert (process(logits, sampling) > NEVER).tolist() == [bool(k) for k in kept]


def test_filtered_tokens_are_never_proposed():
    scores = scores_of([{1: 0.5, 2: 0.3, 3: 0.2, EOS: 1e-9}] * 3)
    for seed in range(50):
        sampling = SamplingParams(temperature=2.0, top_k=2, seed=seed)
        for path in (
            coupled_path(scores, 2, EOS, sampling, 0),
            cps_path(scores, 2, EOS, sampling, (1,), BeamSearch(Uniform(), SearchParams())),
        ):
            assert set(path.tokens) <= {1, 2}
