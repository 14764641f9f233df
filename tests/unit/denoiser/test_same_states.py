"""Drafts change nothing but the number of calls; and the bugs that would change more are seen."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import denoiser_service.core.decode as decode_module
from denoiser_service.core.calibrate import Counts
from denoiser_service.core.decode import GraphDrafting, speculative, vanilla
from denoiser_service.core.graph import RankedBy
from denoiser_service.core.next import Rule
from denoiser_service.core.ranks import Ranks
from denoiser_service.core.text import Text
from denoiser_service.core.walk import walk
from foredraft.decoding.block_state import MASKED, extends, masked_slots
from foredraft.denoising import Dynamic, Static
from tests.support.denoiser.tabular import (
    TEXT,
    OfTheParent,
    Scripted,
    SeeingEachOther,
    Tabular,
    all_successors,
    hostile,
    states_of,
)

RULES = [Static(1), Static(2), Dynamic(0.5), Dynamic(0.9)]
SEEDS = range(40)
rules = st.builds(
    Rule, st.sampled_from(RULES), st.sampled_from([0.0, 0.7, 1.0]), st.integers(0, 2**63)
)


@settings(max_examples=60)
@given(rules, st.integers(0, 10_000), st.integers(1, 9))
def test_any_drafts_lead_through_the_states_of_vanilla_decoding(rule, seed, max_tokens):
    text = Text(TEXT.prompt, max_tokens)
    plain = vanilla(Tabular(seed), text, rule)
    drafted = speculative(Tabular(seed), text, rule, hostile(np.random.default_rng(seed)))
    assert [b.states for b in drafted.blocks] == [b.states for b in plain.blocks]
    assert drafted.tokens == plain.tokens and len(plain.tokens) == max_tokens
    assert drafted.steps == plain.steps == plain.calls
    assert drafted.calls <= drafted.steps


@settings(max_examples=40)
@given(rules, st.integers(0, 10_000), st.sampled_from(RankedBy), st.integers(0, 5))
def test_a_calibrated_graph_leads_through_the_same_states(rule, seed, ranked_by, budget):
    counts = Counts(ranked_by, lookahead=3)
    plain = vanilla(Tabular(seed), TEXT, rule)
    for block in plain.blocks:
        counts.add(block, rule)
    denoiser = Tabular(seed)
    drafting = GraphDrafting(counts.graph(10), rule, budget)
    drafted = speculative(denoiser, TEXT, rule, drafting)
    assert [b.states for b in drafted.blocks] == [b.states for b in plain.blocks]
    assert drafted.calls <= drafted.steps
    assert all(len(states) <= budget + 1 for states in denoiser.calls)


def test_all_successors_need_two_calls_a_block():
    for seed in SEEDS:
        rule = Rule(Static(1), 1.0, seed)
        drafted = speculative(Tabular(seed), TEXT, rule, all_successors)
        assert all(len(b.walks) == min(2, len(b.logits)) for b in drafted.blocks)


def test_what_no_walk_can_come_to_is_not_evaluated():
    denoiser = Tabular()
    speculative(denoiser, TEXT, Rule(Static(1)), hostile(np.random.default_rng(0)))
    for states in denoiser.calls:
        assert len(set(states)) == len(states)
        assert all(extends(state, states[0]) and MASKED in state for state in states)


def test_a_stop_ends_the_text_and_the_prompt_opens_its_block():
    denoiser = Scripted(4, [5, 6, 7, 5])
    decoded = vanilla(denoiser, Text((1, 2, 3, 4, 1), 20, frozenset({7})), Rule(Static(1)))
    assert decoded.tokens == (6, 7)
    assert decoded.blocks[0].states[:3] == ((1, -1, -1, -1), (1, 6, -1, -1), (1, 6, 7, -1))
    assert [block.start for block in decoded.blocks] == [4]


def test_all_sure_slots_are_filled_at_once():
    decoded = vanilla(Scripted(4, [5, 6, 7, 5], sure=(1, 3)), Text((), 4), Rule(Dynamic(0.9)))
    assert decoded.blocks[0].states[1] == (-1, 6, -1, 5)
    assert decoded.steps == 3


def differs(denoiser, drafting=all_successors, temperature=1.0, unmasking=RULES[0]):
    """Whether some seed's states are not vanilla's."""
    return any(
        states_of(denoiser(seed), rule, drafting)
        != [block.states for block in vanilla(Tabular(seed), TEXT, rule).blocks]
        for seed in SEEDS
        for rule in [Rule(unmasking, temperature, seed)]
    )


@pytest.mark.parametrize("unmasking", RULES)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_next_state_does_not_depend_on_how_a_state_was_evaluated(unmasking, temperature):
    assert not differs(Tabular, temperature=temperature, unmasking=unmasking)


@pytest.mark.parametrize("denoiser", [OfTheParent, SeeingEachOther])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_of_another_state_are_seen(denoiser, temperature):
    assert differs(denoiser, temperature=temperature)


class Subsets(dict):
    """Takes a draft for known if it is filled where the state is, and beyond."""

    def _found(self, state):
        return next((each for each in reversed(self) if extends(each, state)), None)

    def __contains__(self, state):
        return self._found(state) is not None

    def __getitem__(self, state):
        return super().__getitem__(self._found(state))


def test_accepting_a_draft_that_only_holds_the_state_is_seen(monkeypatch):
    def faulty(state, known, *rest):
        return walk(state, Subsets(known), *rest)

    monkeypatch.setattr(decode_module, "walk", faulty)
    assert differs(Tabular)


class OverAllSlots(Ranks):
    """Ranks positions over all slots, the filled ones among them."""

    def __init__(self, anchor, rule, ranked_by):
        super().__init__(anchor, rule, ranked_by)
        self._slots = list(range(len(anchor.state)))


def unfounded_drafts(ranks_of):
    """How many of a graph's nodes fail to fill masked slots, over all calls of some texts."""
    unfounded = []
    for seed in SEEDS:
        rule = Rule(Static(1), 1.0, seed)
        counts = Counts(RankedBy.NOISE, lookahead=2)
        for block in vanilla(Tabular(seed), TEXT, rule).blocks:
            counts.add(block, rule)
        nodes = [node for node in counts.nodes() if len(node.formula) == 1]

        def drafts(anchor, rule=rule, nodes=nodes):
            ranks = ranks_of(anchor, rule, RankedBy.NOISE)
            for node in nodes:
                (candidate,) = node.formula
                if candidate.position <= len(masked_slots(anchor.state)):
                    try:
                        draft = ranks.draft(node.formula)
                        state = draft and draft.state
                    except ValueError:
                        state = None
                    unfounded.append(state is None)
            return ()

        speculative(Tabular(seed), TEXT, rule, drafts)
    return sum(unfounded)


def test_ranks_over_filled_slots_are_seen():
    assert unfounded_drafts(Ranks) == 0
    assert unfounded_drafts(OverAllSlots) > 0
