"""A text's bigrams, whatever the order in which it is filled."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from foredraft.layout import Layout
from verifier_service.targets.followers import MOST_FOLLOWERS, Followers


def filled(layout, tokens):
    found = Followers(layout)
    found.extend(tokens)
    return found


def test_neighbours_by_position_follow_each_other_and_not_by_order():
    # By position: 7 _ 8 9 _ 5.
    found = filled(Layout(6, (0, 2, 3, 5)), (7, 8, 9, 5))
    assert found.after(8) == [9]
    assert [*found.after(7), *found.after(9), *found.after(5)] == []
    found.extend((6,))
    assert (found.after(7), found.after(6)) == ([6], [8])


def test_the_token_before_is_a_known_one_or_the_guess():
    # By position: _ _ 8 _ _.
    found = filled(Layout(5, (2,)), (8,))
    assert found.before(0, None) is None
    assert found.before(1, 4) == 4
    # After position 1 comes position 3, which 8 stands before.
    assert found.before(2, 4) == 8
    assert found.before(3, 4) == 4
    found.extend((6,))
    assert found.before(0, None) == 6 and found.after(None) == ()


def test_the_latest_come_first_and_only_some_are_kept():
    layout = Layout(60, (59,))
    found = filled(layout, (0, *(token for each in range(10, 30) for token in (1, each))))
    assert list(found.after(1)) == list(range(29, 29 - MOST_FOLLOWERS, -1))
    found.extend((1, 25))
    assert list(found.after(1))[:2] == [25, 29]


@given(st.data())
def test_a_whole_texts_bigrams_are_those_by_position(data):
    length = data.draw(st.integers(2, 12))
    chosen = data.draw(st.sets(st.integers(0, length - 1), min_size=1, max_size=length - 1))
    layout = Layout(length, tuple(sorted(chosen)))
    tokens = data.draw(st.lists(st.integers(0, 3), min_size=length, max_size=length))
    found = filled(layout, [tokens[at] for at in layout.positions])
    pairs = {(token, after) for token in range(4) for after in found.after(token)}
    assert pairs == set(pairwise(tokens))
