"""The compiled drafts are those of the reference."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from denoiser_service.compiled_drafting import NativeDrafting, PackedGraph, best_drafting
from denoiser_service.core.decode import GraphDrafting
from denoiser_service.core.graph import Candidate, DraftGraph, Node, RankedBy
from denoiser_service.core.next import Rule
from denoiser_service.core.prefixes import ROOT, Prefix, prefixes_of
from denoiser_service.core.ranks import Anchor
from foredraft.decoding.block_state import MASKED, is_full
from foredraft.denoising import Dynamic, Static
from foredraft_kernels.loader import load_kernels

needs_kernels = pytest.mark.skipif(load_kernels() is None, reason="not built")


def graph_of(*formulas, ranked_by=RankedBy.NOISE, counts=None, anchors=1):
    every = dict.fromkeys(frozenset(each) for each in formulas)
    counts = counts or [1] * len(every)
    nodes = (Node(each, len(each), count) for each, count in zip(every, counts, strict=False))
    return DraftGraph(tuple(nodes), ranked_by, anchors)


def a_graph(random, ranked_by):
    """Formulas that grow by step as calibration's do, and some that no step can lead to."""
    formulas: list[list[Candidate]] = []
    for _ in range(int(random.integers(1, 12))):
        grown = list(formulas[random.integers(len(formulas))]) if formulas else []
        after = len(grown) if random.random() < 0.9 else int(random.integers(9))
        for _ in range(int(random.integers(1, 3))):
            position, rank = random.choice([1, 1, 1, 2, 3, 7], 2).tolist()
            grown.append(Candidate(position, rank, after))
        formulas.append(grown)
    counts = random.integers(1, 100, len(formulas)).tolist()
    return graph_of(*formulas, ranked_by=ranked_by, counts=counts, anchors=100)


def an_anchor(random, slots, vocab):
    """A state with a masked slot, of which the other ones are filled or not."""
    state = [MASKED if random.random() < 0.6 else int(random.integers(vocab)) for _ in range(slots)]
    state[random.integers(slots)] = MASKED
    logits = random.normal(0, 3, (slots, vocab)).astype(np.float32)
    logits[:, 1:][random.random((slots, vocab - 1)) < 0.2] = -np.inf
    anchor = Anchor.of(tuple(state), logits, int(random.integers(0, 1000)))
    least = float(random.choice([0, 0, 0.01, 0.1, 0.5]))
    return anchor._replace(full=bool(random.random() < 0.5), least=least)


@needs_kernels
@given(
    st.integers(0, 100_000),
    st.sampled_from([0.0, 0.3, 1.0, 1.7]),
    st.sampled_from(RankedBy),
    st.sampled_from([Static(1), Static(2), Dynamic(0.9)]),
    st.integers(0, 13),
)
def test_states_and_chances_are_those_of_the_reference(seed, temperature, by, unmasking, budget):
    random = np.random.default_rng(seed)
    graph, vocab = a_graph(random, by), int(random.integers(2, 200))
    rule = Rule(unmasking, temperature, seed - 50_000)
    native = best_drafting(graph)(rule, budget)
    assert isinstance(native, NativeDrafting)
    for slots in (8, 8, 3):  # What is kept from call to call fits blocks of any length.
        anchor = an_anchor(random, slots, vocab)
        expected = GraphDrafting(graph, rule, budget)(anchor)
        found = native(anchor)
        assert [guess.state for guess in found] == [guess.state for guess in expected]
        assert [guess.chance for guess in found] == pytest.approx(
            [guess.chance for guess in expected], rel=1e-12
        )


@needs_kernels
def test_a_full_block_is_drafted_where_it_is_of_use():
    logits = np.log([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1]]).astype(np.float32)
    graph = graph_of(
        [Candidate(1, 1)], [Candidate(1, 1), Candidate(1, 1, 1)], counts=[4, 2], anchors=8
    )
    drafting = best_drafting(graph)(Rule(Static(1)), 2)
    anchor = Anchor.of((MASKED, MASKED), logits, 0)
    [only] = drafting(anchor)
    assert only.state == (MASKED, 1)
    assert only.chance == pytest.approx(math.sqrt(0.5 * 0.8))
    both = drafting(anchor._replace(full=True))
    assert [guess.state for guess in both] == [(MASKED, 1), (0, 1)] and is_full(both[1].state)


@needs_kernels
def test_logits_that_lie_otherwise_in_memory_are_left_to_the_reference():
    random = np.random.default_rng(3)
    graph, rule = graph_of([Candidate(1, 1)]), Rule(Dynamic(), 1.0, 5)
    anchor = an_anchor(random, 4, 9)
    apart = anchor._replace(logits=np.asfortranarray(anchor.logits))
    assert best_drafting(graph)(rule, 1)(apart) == GraphDrafting(graph, rule, 1)(anchor)


def test_a_graph_without_nodes_drafts_nothing():
    drafting = best_drafting(DraftGraph(()))(Rule(Dynamic()), 3)
    assert not drafting(an_anchor(np.random.default_rng(0), 4, 9))
    with pytest.raises(ValueError, match="no nodes"):
        PackedGraph(DraftGraph(()))


def test_prefixes_are_by_step_and_each_there_once():
    one, two, three = Candidate(2, 1), Candidate(1, 1, 1), Candidate(1, 2, 1)
    every, paths = prefixes_of(graph_of([one, two], [one], [one, three], [two]))
    assert every == (Prefix(ROOT, one), Prefix(0, two), Prefix(0, three), Prefix(ROOT, two))
    assert paths == ((0, 1), (0,), (0, 2), (3,))
