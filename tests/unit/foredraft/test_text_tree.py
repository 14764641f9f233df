"""What a text tells of its own continuation."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foredraft.decoding.tree import branch, check_parents
from foredraft.ngram.index import NgramIndex, mix
from foredraft.ngram.params import NgramParams
from foredraft.ngram.tree import NOTHING, ngram_tree

texts = st.lists(st.integers(0, 4), max_size=30)


def counted_afresh(text, path, length, window):
    """What followed the last `length` tokens of text and path within the text's window."""
    tail = [*text, *path][-length:]
    counts: dict[int, int] = {}
    for end in range(max(length, len(text) - window), len(text)):
        if text[end - length : end] == tail:
            counts[text[end]] = counts.get(text[end], 0) + 1
    return counts


@given(texts, st.lists(st.integers(0, 4), max_size=4), st.integers(1, 5), st.integers(1, 40))
def test_followers_are_the_counts(text, path, longest, window):
    found = NgramIndex(text, longest, window).followers(tuple(path))
    for length in range(1, longest + 1):
        expected = counted_afresh(text, path, length, window)
        if length > len(text) + len(path) or not expected:
            assert len(found) < length
            break
        assert found[length - 1] == expected


def test_what_followed_last_comes_first():
    [after_1, *_] = NgramIndex([1, 2, 1, 3, 1], 1).followers(())
    assert list(after_1) == [3, 2]


def test_of_many_places_the_last_are_looked_at():
    text = [1, 2, 1, 3, 1, 4, 1]
    assert NgramIndex(text, 1, places=2).followers(()) == [{4: 1, 3: 1}]
    assert NgramIndex(text, 1, places=3).followers(()) == NgramIndex(text, 1).followers(())


def test_counts_are_weighed_against_what_was_expected():
    tokens, shares = [7], [1.0]
    left = mix(tokens, shares, [{8: 3, 7: 1}, {8: 1}], (4.0, 1.0, 9.0))
    assert left == pytest.approx(1 / 4)
    assert tokens == [7, 8]
    assert shares == pytest.approx([(4 / 8 + 1 / 8) / 2, (3 / 8) / 2 + 1 / 2])


@given(texts, st.integers(1, 20), st.sampled_from([0.02, 0.2]), st.sampled_from([0.1, 2.0]))
def test_a_tree_holds_what_the_text_had(text, nodes, least, pseudocount):
    params = NgramParams(
        min_expected_tokens=0.0, depth=5, pseudocounts=(pseudocount,) * 3, min_node_prob=least
    )
    tree = ngram_tree(text, nodes, params, {4})
    check_parents("parents", tree.parents, len(tree.tokens))
    paths = [
        tuple(tree.tokens[i] for i in branch(tree.parents, node))
        for node in range(len(tree.tokens))
    ]
    assert len(paths) <= nodes and len(set(paths)) == len(paths)
    assert 0 <= sum(tree.expected) <= 5
    for path in paths:
        assert len(path) <= 5 and 4 not in path[:-1]
        before = path[-2] if len(path) > 1 else text[-1]
        assert (before, path[-1]) in pairwise(text)


def test_the_likeliest_come_first_and_add_up():
    params = NgramParams(min_expected_tokens=1.2, depth=2, pseudocounts=(1.0,), min_node_prob=0.05)
    tree = ngram_tree([1, 2, 1, 2, 1, 3, 1], 9, params, set())
    # 1 was followed by 2 twice and by 3 once, both of them by 1 alone.
    assert tree.tokens == (2, 1, 3, 1)
    assert tree.parents == (-1, 0, -1, 2)
    assert sum(tree.expected) == pytest.approx(2 / 4 + 2 / 4 * 2 / 3 + 1 / 4 + 1 / 4 * 1 / 2)


def test_a_text_without_repetitions_tells_nothing():
    for text in ([], [1], [1, 2, 3]):
        assert ngram_tree(text, 4, NgramParams(), set()) == NOTHING
        assert ngram_tree(text, 4, NgramParams(min_expected_tokens=0.0), set()) == NOTHING


def test_what_is_not_likely_enough_is_nothing():
    text = [1, 2, 1, 2, 1, 3, 1]
    for least in (1.3, 5.0):
        params = NgramParams(
            min_expected_tokens=least, depth=2, pseudocounts=(1.0,), min_node_prob=0.05
        )
        assert ngram_tree(text, 9, params, set()) == NOTHING
