"""Ranks, and the nodes of a graph that are evaluated."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from denoiser_service.core import prune as pruning
from denoiser_service.core.graph import Candidate, DraftGraph, Node, RankedBy, leads_to
from denoiser_service.core.next import Rule, next_state
from denoiser_service.core.prune import log_scores
from denoiser_service.core.ranks import Anchor, Ranks
from foredraft.decoding.block_state import MASKED, is_full, num_filled
from foredraft.denoising import Dynamic, Static

M = MASKED
P = np.array([[0.1, 0.2, 0.7], [0.8, 0.15, 0.05], [0.3, 0.4, 0.3], [0.05, 0.9, 0.05]])
ANCHOR = Anchor.of((M, M, M, 2), np.log(P).astype(np.float32), 0)
"""Slot 3 is filled; the others' best tokens have 0.7, 0.8 and 0.4."""
GREEDY = Rule(Static(1))


def prune(*given):
    return tuple(guess.state for guess in pruning.prune(*given))


def formula(*pairs):
    return frozenset(Candidate(*pair) for pair in pairs)


def graph(*formulas):
    return DraftGraph(tuple(Node(each, len(each), 1) for each in formulas))


ONE, TWO, THREE = formula((1, 1)), formula((1, 1), (2, 1)), formula((1, 1), (2, 1), (3, 1))


def test_ranks_are_over_masked_slots():
    ranks = Ranks(ANCHOR, GREEDY, RankedBy.NOISE)
    assert ranks.draft(ONE).state == (M, 0, M, 2)
    assert ranks.draft(formula((2, 1))).state == (2, M, M, 2)
    assert ranks.draft(formula((2, 2), (3, 1))).state == (1, M, 1, 2)
    assert ranks.draft(formula((3, 2))).state == (M, M, 0, 2), "equal probabilities go by token"
    assert ranks.draft(formula((4, 1))) is None and ranks.draft(formula((1, 4))) is None
    assert ranks.draft(formula((1, 1), (1, 2))) is None, "a slot named twice"


def test_an_impossible_token_is_no_draft():
    logits = ANCHOR.logits.copy()
    logits[1, 2] = -np.inf
    assert (
        Ranks(ANCHOR._replace(logits=logits), GREEDY, RankedBy.NOISE).draft(formula((1, 3))) is None
    )


@given(
    st.integers(0, 1000),
    st.sampled_from([0.0, 1.0]),
    st.sampled_from(RankedBy),
    st.integers(0, 2),
    st.integers(0, 2),
    st.integers(0, 2),
)
def test_a_candidate_drafts_the_token_that_it_was_made_of(
    seed, temperature, by, slot, token, after
):
    logits = np.random.default_rng(seed).normal(0, 1, (4, 3)).astype(np.float32)
    ranks = Ranks(ANCHOR._replace(logits=logits), Rule(Static(1), temperature, seed), by)
    candidate = ranks.candidate(slot, token, after)
    assert ranks.draft(frozenset([candidate])).state[slot] == token
    assert candidate.after == (after if temperature and by is RankedBy.NOISE else 0)


@given(st.integers(0, 1000))
def test_ranked_with_noise_rank_one_is_what_the_target_draws_if_its_distribution_stays(seed):
    rule = Rule(Static(1), 1.0, seed)
    state, filled = ANCHOR.state, []
    ranks = Ranks(ANCHOR, rule, RankedBy.NOISE)
    while not is_full(state):
        after = num_filled(state) - num_filled(ANCHOR.state)
        later = next_state(state, ANCHOR.logits, rule, 0).state
        slot = next(s for s in range(4) if later[s] != state[s])
        filled.append(ranks.candidate(slot, later[slot], after))
        assert filled[-1].vocabulary == 1
        assert ranks.draft(frozenset(filled)).state == later
        state = later
    assert filled[0] == Candidate(1, 1, 0)


def test_scores_are_geometric_means_of_a_node_and_its_children():
    nodes = graph(ONE, TWO, THREE, formula((9, 1)))
    ranks = Ranks(ANCHOR, GREEDY, RankedBy.NOISE)
    scores = log_scores([ranks.draft(node.formula) for node in nodes.nodes], nodes)
    local = [0.8, math.sqrt(0.8 * 0.7), (0.8 * 0.7 * 0.4) ** (1 / 3)]
    expected = [
        math.sqrt(local[0] * math.sqrt(local[1] * local[2])),
        math.sqrt(local[1] * local[2]),
        local[2],
        0.0,
    ]
    assert np.exp(scores) == pytest.approx(expected, rel=1e-5)


def test_only_nodes_that_a_step_can_reach_are_kept():
    other = formula((2, 1))
    nodes = graph(ONE, other, TWO)
    ranks = Ranks(ANCHOR, GREEDY, RankedBy.NOISE)
    first, second, both = (ranks.draft(each).state for each in (ONE, other, TWO))
    assert prune(nodes, ranks, Static(1), 1) == (first,)
    assert prune(nodes, ranks, Static(1), 2) == (first, both)
    assert set(prune(nodes, ranks, Static(1), 5)) == {first, second, both}
    assert prune(graph(TWO), ranks, Static(1), 5) == ()
    assert (
        prune(graph(TWO), ranks, Static(2), 5) == prune(graph(TWO), ranks, Dynamic(), 5) == (both,)
    )
    assert prune(nodes, ranks, Static(1), 0) == ()


def test_a_full_block_takes_no_place_and_equal_states_take_one():
    ranks = Ranks(ANCHOR, GREEDY, RankedBy.NOISE)
    again = formula((1, 1, 1))
    assert prune(graph(THREE, ONE, again), ranks, Dynamic(), 5) == (ranks.draft(ONE).state,)


def test_one_step_leads_to_as_many_more_tokens_as_it_fills():
    assert leads_to(frozenset(), ONE, Static(1)) and leads_to(ONE, TWO, Static(1))
    assert not leads_to(frozenset(), TWO, Static(1)) and leads_to(frozenset(), TWO, Static(2))
    assert leads_to(frozenset(), THREE, Dynamic()) and not leads_to(TWO, ONE, Dynamic())
    assert not leads_to(formula((3, 1)), TWO, Dynamic()) and not leads_to(ONE, ONE, Dynamic())
