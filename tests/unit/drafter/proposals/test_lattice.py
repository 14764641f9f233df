import numpy as np
import pytest

from drafter_service.proposals.lattice import NEVER, generated_len, prune
from tests.support.drafters import EOS, scores_of


def kept(lattice):
    return [
        {int(t) for t, q in zip(row, log_q, strict=True) if q > NEVER}
        for row, log_q in zip(lattice.tokens, lattice.log_q, strict=True)
    ]


def pruned(scores, tau=0.8, max_candidates=15, temperature=0.0, noise=None):
    noise = np.zeros(scores.tokens.shape) if noise is None else noise
    return prune(scores, noise, temperature, tau, max_candidates, EOS)


def test_width_follows_the_mass_and_eos_stays():
    scores = scores_of(
        [
            {1: 0.85, 2: 0.1, 3: 0.03, EOS: 0.001},
            {4: 0.5, 5: 0.3, 6: 0.15, EOS: 0.001},
            {7: 0.4, 8: 0.3, 9: 0.2, EOS: 0.1},
        ]
    )
    assert kept(pruned(scores)) == [{1, EOS}, {4, 5, EOS}, {7, 8, 9, EOS}]
    assert kept(pruned(scores, max_candidates=2)) == [{1, EOS}, {4, 5, EOS}, {7, 8, EOS}]
    assert kept(pruned(scores, tau=1.0)) == [{1, 2, 3, EOS}, {4, 5, 6, EOS}, {7, 8, 9, EOS}]


def test_ends_with_the_first_slot_whose_best_is_eos():
    scores = scores_of([{1: 0.9, EOS: 0.1}, {EOS: 0.6, 2: 0.4}, {3: 0.9, EOS: 0.1}])
    assert kept(pruned(scores)) == [{1, EOS}, {EOS, 2}]
    assert generated_len(scores, 3, EOS) == 1
    assert generated_len(scores, 1, EOS) == 1


def test_generated_len_without_eos_is_the_block():
    scores = scores_of([{1: 0.9, EOS: 0.1}] * 4)
    assert generated_len(scores, 3, EOS) == 3


def test_eos_tail_is_the_cost_of_filling_up_with_eos():
    scores = scores_of([{1: 0.9, EOS: 0.1}, {2: 0.8, EOS: 0.2}])
    tail = pruned(scores).eos_tail[0]
    assert tail == pytest.approx([np.log(0.1) + np.log(0.2), np.log(0.2), 0.0])


def test_edges_follow_their_candidates():
    edges = {(1, 1, 4): 0.14, (1, 1, 5): 0.15, (1, 2, 4): 0.24, (1, 2, 5): 0.25}
    scores = scores_of([{1: 0.6, 2: 0.4, EOS: 1e-6}, {4: 0.7, 5: 0.3, EOS: 1e-6}], edges)
    noise = np.array([[0.0, 9.0, 0.0], [0.0, 9.0, 0.0]])
    lattice = pruned(scores, tau=1.0, temperature=1.0, noise=noise)
    assert lattice.tokens[:, :2].tolist() == [[2, 1], [5, 4]]
    assert lattice.edge is not None
    assert lattice.edge[1, :2, :2] == pytest.approx(np.array([[0.25, 0.24], [0.15, 0.14]]))


def test_above_temperature_0_rank_and_mass_are_the_perturbed_ones():
    scores = scores_of([{1: 0.7, 2: 0.2, 3: 0.05, EOS: 0.01}])
    noise = np.array([[0.0, 0.0, 20.0, 0.0]])
    assert kept(pruned(scores, temperature=1.0, noise=noise)) == [{3, EOS}]
