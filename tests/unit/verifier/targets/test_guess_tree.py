"""The likeliest tree of guesses, beside all trees."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from foredraft.decoding.tree import ROOT, depths, is_tree
from verifier_service.targets.guess_tree import Guess, likeliest_tree

CHANCES = st.lists(st.sampled_from((0.6, 0.5, 0.25, 0.1)), min_size=0, max_size=2)


def siblings(chances, step, after):
    """Guesses whose tokens tell their step and what they follow."""
    ordered = sorted(chances, reverse=True)
    return [
        Guess(chance, 100 * (after or 0) + 10 * step + rank, False)
        for rank, chance in enumerate(ordered)
    ]


@given(st.lists(CHANCES, min_size=3, max_size=3), st.integers(0, 4), st.integers(0, 3))
def test_no_other_tree_of_the_size_is_expected_to_have_more_accepted(levels, most, depth):
    def children(step, after):
        return siblings(levels[step], step, after) if step < len(levels) else []

    found = likeliest_tree(children, most, depth, True)
    assert is_tree(found.parents, len(found.guesses)) or not found.parents
    assert list(found.expected) == sorted(found.expected, reverse=True)
    assert max(depths(found.parents), default=0) <= depth
    for guess, parent, chance in zip(*found, strict=True):
        above = 1.0 if parent == ROOT else found.expected[parent]
        assert chance == above * guess.chance
    # All nodes that could be, by their chances; any that are chosen have their parents.
    nodes, frontier = [], [(1.0, None, 0)]
    while frontier:
        above, after, step = frontier.pop()
        for guess in children(step, after) if step < depth else ():
            nodes.append(above * guess.chance)
            frontier.append((above * guess.chance, guess.token, step + 1))
    best = max((sum(each) for each in combinations(nodes, min(most, len(nodes)))), default=0.0)
    assert abs(sum(found.expected) - best) < 1e-9


def test_a_path_takes_the_best_child_alone():
    found = likeliest_tree(lambda step, after: siblings([0.5, 0.4], step, after), 3, 9, False)
    assert found.parents == (-1, 0, 1) and found.expected == (0.5, 0.25, 0.125)
