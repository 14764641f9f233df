"""The compiled n-gram tree is foredraft.ngram.tree's, node for node and bit for bit."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foredraft.ngram.params import NgramParams
from foredraft_kernels.loader import load_kernels
from tests.support.examples import examples
from verifier_service.models.compiled.ngrams import best_trees
from verifier_service.rules.ngrams import reference_trees

pytestmark = pytest.mark.skipif(load_kernels() is None, reason="not built")


@examples(500)
@given(
    data=st.data(),
    vocab=st.sampled_from([2, 4, 40]),
    num_nodes=st.integers(1, 40),
    params=st.builds(
        NgramParams,
        st.just(0.0),
        st.integers(1, 12),
        st.sampled_from([1, 5, 50, 2048]),
        st.lists(st.floats(1e-3, 50), min_size=1, max_size=8).map(tuple),
        st.sampled_from([1e-6, 0.02, 0.3]),
    ),
)
def test_it_is_the_reference(data, vocab, num_nodes, params):
    text = array("i", data.draw(st.lists(st.integers(0, vocab - 1), min_size=1, max_size=300)))
    stops = data.draw(st.sets(st.integers(0, vocab - 1), max_size=1))
    ours = best_trees()(num_nodes, params, stops)
    theirs = reference_trees(num_nodes, params, stops)
    for _ in range(2):
        depth, least = data.draw(st.integers(1, 14)), data.draw(st.sampled_from([0.0, 0.1, 0.9]))
        assert ours(text, depth, least) == theirs(text, depth, least)
        text.extend(data.draw(st.lists(st.integers(0, vocab - 1), max_size=30)))


def test_a_text_of_one_token_over_and_over():
    text = array("i", [7] * 5000)
    params = NgramParams(min_expected_tokens=0.0)
    tree = best_trees()(12, params, set())(text, 12, 0.0)
    assert tree == reference_trees(12, params, set())(text, 12, 0.0)
    assert tree.tokens == (7,) * 12
