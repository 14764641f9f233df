"""A draft tree holds the likeliest prefixes of the lattice, as brute force finds them."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drafter_service.proposals.draft_tree import TreeParams, TreeScores, grow, log_odds, mixed
from drafter_service.proposals.proposals import tree_block
from foredraft.decoding.tree import branch, check_parents
from foredraft.noise.gumbel import gumbel
from foredraft.types import SamplingParams
from tests.support.drafters import EOS, blocks, scores_of
from tests.support.examples import examples

GREEDY = SamplingParams()
TEXT = (9,)
EVERYTHING = TreeParams(
    depth=8,
    min_node_prob=0.0,
    confidence_exponent=1.0,
    confidence_exponent_sampled=1.0,
    pseudocounts=(),
)
ROWS = [{1: 0.6, 2: 0.4, EOS: 1e-9}, {3: 0.5, 4: 0.5 - 1e-6, EOS: 1e-9}]
EDGES = {(1, 1, 4): 3.0}


def prefixes(scores, odds, depth):
    """Every prefix of the lattice that holds EOS at most at its end, with its log probability."""
    found = {}
    width = scores.tokens.shape[1]
    for length in range(1, depth + 1):
        for columns in itertools.product(range(width), repeat=length):
            tokens = [int(scores.tokens[slot, c]) for slot, c in enumerate(columns)]
            if EOS in tokens[:-1]:
                continue
            before = (0, *columns[:-1])
            steps = zip(range(length), before, columns, strict=True)
            found[tuple(tokens)] = sum(odds[j, p, c] for j, p, c in steps)
    return found


@examples(60)
@given(
    scores=blocks(),
    nodes=st.integers(1, 12),
    temperature=st.sampled_from([0.0, 0.7]),
    seed=st.integers(0, 9),
)
def test_the_tree_is_the_best_prefixes(scores, nodes, temperature, seed):
    # The rows of edge[0] are all for the last token of the prefix, as the model gives them.
    scores.edge[0] = scores.edge[0, :1]
    noise = np.random.default_rng(seed).gumbel(size=scores.tokens.shape) * (temperature > 0)
    logits = (scores.log_q[:, None, :] + scores.edge) / (temperature or 1.0)
    perturbed = TreeScores(scores.tokens, logits, noise, confidence_exponent=1.0)
    tree = grow(perturbed, nodes, EVERYTHING, EOS)
    check_parents("parents", tree.parents, len(tree.tokens))
    texts = [tuple(tree.tokens[n] for n in branch(tree.parents, i)) for i in range(len(tree.mass))]
    assert len(set(texts)) == len(texts)
    known = prefixes(scores, log_odds(perturbed), len(scores.tokens))
    assert np.allclose(np.log(tree.mass), [known[text] for text in texts])
    best = sorted(known.values(), reverse=True)[: len(texts)]
    assert len(texts) == min(nodes, len(known))
    assert np.allclose(sorted(np.log(tree.mass), reverse=True), best)
    assert np.all(np.diff(tree.mass) <= 1e-12)


def test_children_know_their_parent_through_the_edges():
    drafted = tree_block(scores_of(ROWS, EDGES), 4, EOS, GREEDY, TEXT, EVERYTHING)
    # After 1 the edge makes 4 all but certain; after 2 nothing is said.
    assert drafted.tokens == (1, 4, 2, 3)
    assert drafted.parents == (-1, 0, -1, 2)
    assert drafted.generated_len == 2


def test_unlikely_nodes_are_left_out():
    params = replace(EVERYTHING, min_node_prob=0.3)
    drafted = tree_block(scores_of(ROWS, EDGES), 9, EOS, GREEDY, TEXT, params)
    assert drafted.tokens == (1, 4, 2)


def test_where_nothing_is_likely_enough_the_block_is_empty():
    # The model's 0.6 and 0.4 are halved by two tokens of the text, a quarter each.
    params = replace(EVERYTHING, min_node_prob=0.35, pseudocounts=(2.0,))
    drafted = tree_block(scores_of(ROWS, EDGES), 9, EOS, GREEDY, (9, 5, 9, 6, 9), params)
    assert (drafted.tokens, drafted.parents, drafted.guesses) == ((), (), ())


def test_the_guesses_are_the_nodes_that_would_come_next():
    scores = scores_of([*ROWS, {5: 0.9, 6: 0.1, EOS: 1e-9}], EDGES)
    whole = tree_block(scores, 9, EOS, GREEDY, TEXT, EVERYTHING)
    for count in (1, 2, 4):
        drafted = tree_block(scores, count, EOS, GREEDY, TEXT, EVERYTHING, num_guesses=3)
        assert drafted.tokens == whole.tokens[:count]
        assert 0 < len(drafted.guesses) <= 3
        for node, token, probability in drafted.guesses:
            place = next(
                i for i in range(count, 9) if (whole.parents[i], whole.tokens[i]) == (node, token)
            )
            assert probability == pytest.approx(whole.expected[place]) and node < count
        # Likeliest first, and none that the tree has.
        found = [guess.probability for guess in drafted.guesses]
        assert found == sorted(found, reverse=True)
        nodes = set(zip(drafted.parents, drafted.tokens, strict=True))
        assert nodes.isdisjoint({guess[:2] for guess in drafted.guesses})
    assert tree_block(scores, 3, EOS, GREEDY, TEXT, EVERYTHING).guesses == ()


def test_the_noise_decides_above_temperature_0():
    scores = scores_of([{1: 0.5, 2: 0.5 - 1e-9, EOS: 1e-9}] * 3)
    firsts = set()
    for seed in range(8):
        sampling = SamplingParams(temperature=0.8, seed=seed)
        drafted = tree_block(scores, 3, EOS, sampling, TEXT, EVERYTHING)
        assert drafted == tree_block(scores, 3, EOS, sampling, TEXT, EVERYTHING)
        firsts.add(drafted.tokens[0])
    assert firsts == {1, 2}


def test_what_the_target_filters_out_is_not_drafted():
    scores = scores_of([{1: 0.7, 2: 0.2, 3: 0.1 - 1e-9, EOS: 1e-9}] * 2)
    sampling = SamplingParams(temperature=1.0, top_k=1, seed=3)
    drafted = tree_block(scores, 9, EOS, sampling, TEXT, TreeParams(min_node_prob=1e-9))
    assert drafted.tokens == (1, 1)


NARROW = np.zeros((1, 1, 1), dtype=np.float32)
CERTAIN = TreeScores(np.array([[1]]), NARROW, np.zeros((1, 1)), 1.0)


def test_what_followed_in_the_text_is_weighed_against_the_model():
    # The model is sure of 1; behind the last token came 2 three times, twice of them behind two.
    tokens, odds = mixed(CERTAIN, 0, NARROW[0, 0], [{2: 3}, {2: 2}], (1.0, 2.0))
    assert tokens == [1, 2]
    assert np.exp(odds) == pytest.approx([(1 / 4) * (2 / 4), (3 / 4) * (2 / 4) + 2 / 4])
    # Where the model says nothing, what nobody can name keeps its share.
    tokens, odds = mixed(CERTAIN, 5, None, [{2: 3}], (1.0,))
    assert tokens == [2]
    assert np.exp(odds) == pytest.approx([3 / 4])


def test_a_text_that_repeats_itself_goes_on_beyond_the_slots():
    text = (3, 4, 5, 6, 7, 8, 3, 4, 5, 6, 7, 8, 3, 4)
    params = replace(EVERYTHING, min_node_prob=0.3, text_depth=5, pseudocounts=(4.0, 0.1))
    drafted = tree_block(scores_of(ROWS, EDGES), 9, EOS, GREEDY, text, params)
    # None of it the model's, whose slots are two; text_depth ends it.
    assert drafted.tokens == (5, 6, 7, 8, 3)
    assert drafted.parents == (-1, 0, 1, 2, 3)
    assert drafted.guesses == ()


def test_a_new_text_leaves_the_tree_as_it_is():
    params = replace(EVERYTHING, pseudocounts=(1.0, 1.0))
    alone = tree_block(scores_of(ROWS, EDGES), 9, EOS, GREEDY, TEXT, EVERYTHING)
    assert tree_block(scores_of(ROWS, EDGES), 9, EOS, GREEDY, (9, 8, 7), params) == alone


def test_without_edges_the_model_has_its_say_behind_what_the_text_knew():
    params = replace(EVERYTHING, min_node_prob=0.105, text_depth=2, pseudocounts=(0.5,))
    drafted = tree_block(scores_of(ROWS), 20, EOS, GREEDY, (7, 5, 7), params)
    # 5 and behind it 7 have 2/3 by the text; the model's 3 and 4 share the rest behind 5, too.
    assert drafted.tokens == (5, 7, 1, 2, 3, 4)
    assert drafted.parents == (-1, 0, -1, -1, 0, 0)


def test_the_noise_of_what_only_the_text_knew_is_the_targets():
    text = (3, 4, 3, 5, 3)
    params = replace(EVERYTHING, pseudocounts=(1e-9,), text_depth=1, min_node_prob=1e-6)
    for seed in range(20):
        sampling = SamplingParams(temperature=1.0, seed=seed)
        drafted = tree_block(scores_of(ROWS), 1, EOS, sampling, text, params)
        own = gumbel(seed, np.array([len(text)]), np.array([[4, 5]]))[0]
        assert drafted.tokens == (4 if own[0] > own[1] else 5,)
