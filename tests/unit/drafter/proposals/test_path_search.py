"""The beam equals brute force over the whole lattice as it grows (DiffuSpec Eq. 7)."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drafter_service.proposals.causal_scorer import EdgeScorer, Mixture, Uniform
from drafter_service.proposals.context_ngram import ContextNgram
from drafter_service.proposals.lattice import NEVER, prune
from drafter_service.proposals.path_search import SearchParams, beam_search
from tests.support.drafters import EOS, blocks, scores_of
from tests.support.examples import examples

VOCAB = 8
CONTEXT = (3, 1, 2, 3, 1, 2, 4)


def scorer_of(kind):
    ngram = ContextNgram(VOCAB, order=3)
    return {
        "uniform": Uniform(),
        "edge": EdgeScorer(),
        "context": ngram,
        "mixture": Mixture([(0.5, EdgeScorer()), (0.5, ngram)]),
    }[kind]


def brute_force(lattice, scorer, weight, temperature):
    """The best path and its score, by trying every one."""
    bound = scorer.bind(lattice, CONTEXT)
    scale = 1 / temperature if temperature else 1.0
    depth, width = lattice.tokens.shape
    best: tuple[float, tuple[int, ...]] = (-np.inf, ())
    for columns in itertools.product(range(width), repeat=depth):
        path: tuple[int, ...] = ()
        total, parent = 0.0, 0
        for slot, column in enumerate(columns):
            if lattice.log_q[slot, column] == NEVER:
                total = -np.inf
                break
            causal = np.log(bound.step(slot, [path], np.array([parent]))[0, column])
            total += scale * (weight * lattice.log_q[slot, column] + (1 - weight) * causal)
            total += lattice.noise[slot, column]
            path, parent = (*path, int(lattice.tokens[slot, column])), column
            if path[-1] == EOS:
                for later in range(slot + 1, depth):
                    at = int(np.flatnonzero(lattice.tokens[later] == EOS)[0])
                    total += scale * lattice.log_q[later, at] + lattice.noise[later, at]
                break
        if total > best[0]:
            best = (total, path)
    return best


@pytest.mark.parametrize("kind", ["uniform", "edge", "context", "mixture"])
@examples(40)
@given(
    scores=blocks(),
    weight=st.sampled_from([0.0, 0.3, 1.0]),
    temperature=st.sampled_from([0.0, 0.7]),
)
def test_a_wide_beam_finds_the_best_path(kind, scores, weight, temperature):
    rng = np.random.default_rng(0)
    noise = rng.gumbel(size=scores.tokens.shape) if temperature else np.zeros(scores.tokens.shape)
    lattice = prune(scores, noise, temperature, 1.0, 15, EOS)
    scorer = scorer_of(kind)
    params = SearchParams(tau=1.0, weight=weight, beam=10_000)
    path = tuple(beam_search(lattice, scorer.bind(lattice, CONTEXT), params, temperature, EOS))
    best, expected = brute_force(lattice, scorer, weight, temperature)
    assert np.isfinite(best)
    # Two paths may tie; then either will do.
    assert path == expected or score_of(path, lattice, scorer, weight, temperature) == (
        pytest.approx(best)
    )


def score_of(path, lattice, scorer, weight, temperature):
    """The score of one path, by brute force over a lattice that holds nothing else."""
    log_q = lattice.log_q.copy()
    for slot, token in enumerate(path):
        log_q[slot, lattice.tokens[slot] != token] = NEVER
    only = type(lattice)(lattice.tokens, log_q, lattice.noise, lattice.edge, lattice.eos_tail)
    bound_to_whole = scorer.bind(lattice, CONTEXT)
    return brute_force(only, _Fixed(bound_to_whole), weight, temperature)[0]


class _Fixed:
    def __init__(self, bound):
        self.bound = bound

    def bind(self, lattice, context):
        return self.bound


def test_a_wider_beam_sees_past_the_first_choice():
    edges = {(1, 2, 4): 5.0}
    scores = scores_of([{1: 0.6, 2: 0.4, EOS: 1e-9}, {3: 0.5, 4: 0.5 - 1e-9, EOS: 1e-9}], edges)
    lattice = prune(scores, np.zeros(scores.tokens.shape), 0.0, 1.0, 15, EOS)
    bound = EdgeScorer().bind(lattice, ())
    narrow, wide = (SearchParams(weight=0.0, beam=width) for width in (1, 4))
    assert beam_search(lattice, bound, narrow, 0.0, EOS) == [1, 3]
    assert beam_search(lattice, bound, wide, 0.0, EOS) == [2, 4]


def test_an_early_eos_is_not_rewarded_for_what_it_leaves_out():
    scores = scores_of([{1: 0.5, 2: 0.3, EOS: 0.01}] * 8)
    lattice = prune(scores, np.zeros(scores.tokens.shape), 0.0, 0.8, 15, EOS)
    path = beam_search(lattice, Uniform().bind(lattice, ()), SearchParams(weight=1.0), 0.0, EOS)
    assert path == [1] * 8
