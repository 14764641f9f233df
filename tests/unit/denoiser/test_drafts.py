"""Ranks, and the nodes of a graph that are evaluated."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from denoiser_service.core.graph import Candidate, DraftGraph, Formula, Node, RankedBy, leads_to
from denoiser_service.core.next import Rule, next_state
from denoiser_service.core.prune import log_scores, prune
from denoiser_service.core.ranks import Anchor, Ranks
from foredraft.decoding.block_state import MASKED, State, is_full, num_filled
from foredraft.denoising import Dynamic, Static

M = MASKED
P = np.array([[0.1, 0.2, 0.7], [0.8, 0.15, 0.05], [0.3, 0.4, 0.3], [0.05, 0.9, 0.05]])
ANCHOR = Anchor.of((M, M, M, 2), np.log(P).astype(np.float32), 0)
"""Slot 3 is filled; the others' best tokens have 0.7, 0.8 and 0.4."""
GREEDY = Rule(Static(1))


def pruned(nodes, ranks, unmasking, budget):
    drafts = [ranks.draft(node.formula) for node in nodes.nodes]
    return prune(nodes, drafts, log_scores(nodes, drafts), unmasking, budget)


def states(*given):
    return tuple(guess.state for guess in pruned(*given))


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
    ranks = Ranks(ANCHOR._replace(logits=logits), GREEDY, RankedBy.NOISE)
    assert ranks.draft(formula((1, 3))) is None


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
    earlier = tuple(each for each in range(3) if each != slot)[:after]
    candidate = ranks.candidate(slot, token, earlier)
    noisy = temperature and by is RankedBy.NOISE
    assert candidate.after == (after if noisy else 0)
    before = [ranks.candidate(each, 0, earlier[:at]) for at, each in enumerate(earlier)]
    state = ranks.draft(frozenset((*(before if noisy else ()), candidate))).state
    assert state[slot] == token and (not noisy or all(state[each] == 0 for each in earlier))


@given(st.integers(0, 1000))
def test_ranked_with_noise_rank_one_is_what_the_target_draws_if_its_distribution_stays(seed):
    rule = Rule(Static(1), 1.0, seed)
    state, filled = ANCHOR.state, []
    ranks = Ranks(ANCHOR, rule, RankedBy.NOISE)
    while not is_full(state):
        after = num_filled(state) - num_filled(ANCHOR.state)
        later = next_state(state, ANCHOR.logits, rule, 0).state
        slot = next(s for s in range(4) if later[s] != state[s])
        before = [s for s in range(4) if state[s] != ANCHOR.state[s]]
        filled.append(ranks.candidate(slot, later[slot], before))
        assert filled[-1] == Candidate(1, 1, after)
        assert ranks.draft(frozenset(filled)).state == later
        state = later


def test_ranks_are_among_the_slots_that_earlier_steps_leave():
    ranks = Ranks(ANCHOR, GREEDY, RankedBy.NOISE)
    assert ranks.draft(formula((1, 1), (1, 1, 1))).state == (2, 0, M, 2)
    assert ranks.draft(formula((2, 1), (1, 1, 1))).state == (2, 0, M, 2)
    assert ranks.draft(formula((1, 1), (2, 1), (1, 1, 2))).state == (2, 0, 1, 2)
    assert ranks.draft(formula((1, 1), (3, 1, 1))) is None, "two slots are left"


@given(st.integers(0, 1000), st.integers(1, 12), st.sampled_from([0.0, 1.0]))
def test_slots_are_ranked_by_what_they_draw(seed, slots, temperature):
    """However far the noise's choice is from the likeliest tokens."""
    logits = np.random.default_rng(seed).normal(0, 4, (slots, 5)).astype(np.float32)
    rule = Rule(Static(1), temperature, seed)
    anchor = Anchor.of((M,) * slots, logits, 0)
    tokens = rule.draw(logits, list(range(slots)), 0, 0).tokens
    drawn = logits[np.arange(slots), tokens] - anchor.normalisers
    expected = sorted(range(slots), key=lambda slot: (-drawn[slot], slot))
    for position, slot in enumerate(expected, start=1):
        state = Ranks(anchor, rule, RankedBy.NOISE).draft(formula((position, 1))).state
        assert [at for at, token in enumerate(state) if token != M] == [slot]
        assert state[slot] == tokens[slot]


def counted(*nodes, anchors=100):
    """A graph of formulas and how often each was met."""
    return DraftGraph(tuple(Node(f, len(f), count) for f, count in nodes), anchors=anchors)


def test_a_score_is_the_mean_of_how_often_a_node_was_met_and_how_likely_it_is():
    nodes = counted((ONE, 40), (formula((2, 1)), 50), (TWO, 20))
    found = pruned(nodes, Ranks(ANCHOR, GREEDY, RankedBy.NOISE), Static(1), 3)
    assert [guess.state for guess in found] == [(2, M, M, 2), (M, 0, M, 2), (2, 0, M, 2)]
    squares = [guess.chance**2 for guess in found]
    assert squares == pytest.approx([0.5 * 0.7, 0.4 * 0.8, 0.2 * 0.56], rel=1e-5)


@given(st.integers(0, 1000), st.sampled_from([Static(1), Static(2), Dynamic()]), st.integers(1, 6))
def test_the_best_node_that_is_reached_is_always_next(seed, unmasking, budget):
    random = np.random.default_rng(seed)
    made = {
        frozenset(Candidate(*random.integers(1, 4, 2).tolist()) for _ in range(size))
        for size in random.integers(1, 4, 12).tolist()
    }
    nodes = counted(*((each, int(random.integers(1, 100))) for each in made))
    ranks = Ranks(ANCHOR, GREEDY, RankedBy.NOISE)
    drafts = [ranks.draft(node.formula) for node in nodes.nodes]
    scores = {
        i: math.log(node.count / 100) + draft.log_p
        for i, (node, draft) in enumerate(zip(nodes.nodes, drafts, strict=True))
        if draft and not is_full(draft.state)
    }
    expected: list[State] = []
    reached: list[Formula] = [frozenset()]
    while len(expected) < budget:
        near = [
            i
            for i in scores
            if any(leads_to(earlier, nodes.nodes[i].formula, unmasking) for earlier in reached)
        ]
        if not near:
            break
        best = max(near, key=lambda i: scores[i])
        del scores[best]
        reached.append(nodes.nodes[best].formula)
        if drafts[best].state not in expected:
            expected.append(drafts[best].state)
    assert states(nodes, ranks, unmasking, budget) == tuple(expected)


def test_only_nodes_that_a_step_can_reach_are_kept():
    other = formula((2, 1))
    nodes = graph(ONE, other, TWO)
    ranks = Ranks(ANCHOR, GREEDY, RankedBy.NOISE)
    first, second, both = (ranks.draft(each).state for each in (ONE, other, TWO))
    assert states(nodes, ranks, Static(1), 1) == (first,)
    assert states(nodes, ranks, Static(1), 2) == (first, second)
    assert set(states(nodes, ranks, Static(1), 5)) == {first, second, both}
    assert states(graph(TWO), ranks, Static(1), 5) == ()
    assert (
        states(graph(TWO), ranks, Static(2), 5)
        == states(graph(TWO), ranks, Dynamic(), 5)
        == (both,)
    )
    assert states(nodes, ranks, Static(1), 0) == ()


def test_a_full_block_takes_no_place_and_equal_states_take_one():
    ranks = Ranks(ANCHOR, GREEDY, RankedBy.NOISE)
    again = formula((1, 1, 1))
    assert states(graph(THREE, ONE, again), ranks, Dynamic(), 5) == (ranks.draft(ONE).state,)


def test_one_step_leads_to_as_many_more_tokens_as_it_fills():
    assert leads_to(frozenset(), ONE, Static(1)) and leads_to(ONE, TWO, Static(1))
    assert not leads_to(frozenset(), TWO, Static(1)) and leads_to(frozenset(), TWO, Static(2))
    assert leads_to(frozenset(), THREE, Dynamic()) and not leads_to(TWO, ONE, Dynamic())
    assert not leads_to(formula((3, 1)), TWO, Dynamic()) and not leads_to(ONE, ONE, Dynamic())


@pytest.mark.parametrize(("least", "count"), [(0.0, 2), (0.74, 2), (0.75, 1), (0.9, 0)])
def test_drafts_below_the_least_chance_are_left_out(least, count):
    nodes, ranks = graph(ONE, TWO), Ranks(ANCHOR, GREEDY, RankedBy.NOISE)
    every = pruned(nodes, ranks, GREEDY.unmasking, 2)
    assert [guess.chance for guess in every] == pytest.approx([0.8**0.5, 0.56**0.5])
    drafts = [ranks.draft(node.formula) for node in nodes.nodes]
    scores = log_scores(nodes, drafts)
    found = prune(nodes, drafts, scores, GREEDY.unmasking, 2, least=least)
    assert found == every[:count]
