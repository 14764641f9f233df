"""Draft trees as values: depths, branches, and what is left below a node."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foredraft.decoding.tree import (
    ROOT,
    below,
    branch,
    check_parents,
    depths,
    explicit,
    first_branch,
    follow,
    is_path,
)
from foredraft.errors import InvalidRequest

#      prefix
#     a      b
#   c   d    e
#   f
TOKENS = (10, 20, 30, 40, 50, 60)
PARENTS = (-1, -1, 0, 0, 1, 2)


@st.composite
def trees(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    parents = [draw(st.integers(-1, i - 1)) for i in range(draw(st.integers(0, 20)))]
    tokens = [draw(st.integers(0, 3)) for _ in parents]
    return tokens, parents


def test_the_tree_of_the_picture() -> None:
    assert depths(PARENTS) == [1, 1, 2, 2, 2, 3]
    assert branch(PARENTS, 5) == [0, 2, 5]
    assert first_branch(PARENTS) == [0, 2, 5]
    assert follow(TOKENS, PARENTS, (10, 30, 60)) == 5
    assert follow(TOKENS, PARENTS, (20, 30)) is None
    assert follow(TOKENS, PARENTS, ()) == ROOT
    assert below(PARENTS, 0) == ((2, 3, 5), (-1, -1, 0))
    assert below(PARENTS, 5) == ((), ())


def test_a_path_may_be_left_unsaid() -> None:
    assert tuple(explicit((), 3)) == (-1, 0, 1)
    assert is_path(()) and is_path((-1, 0, 1)) and not is_path(PARENTS)


@pytest.mark.parametrize("parents", [(0,), (-2, 0), (-1, 1), (-1,)])
def test_what_is_no_tree_is_refused(parents: tuple[int, ...]) -> None:
    with pytest.raises(InvalidRequest, match="parents"):
        check_parents("parents", parents, 2 if len(parents) == 1 and parents[0] == -1 else 1)


@given(trees())
def test_a_branch_leads_to_its_node(tree: tuple[list[int], list[int]]) -> None:
    tokens, parents = tree
    check_parents("parents", parents, len(tokens))
    for node in range(len(tokens)):
        nodes = branch(parents, node)
        assert depths(parents)[node] == len(nodes)
        reached = follow(tokens, parents, [tokens[n] for n in nodes])
        if reached is not None:
            assert [tokens[n] for n in branch(parents, reached)] == [tokens[n] for n in nodes]


@given(trees(), st.integers(0, 19))
def test_below_keeps_every_descendant(tree: tuple[list[int], list[int]], node: int) -> None:
    tokens, parents = tree
    if node < len(tokens):
        under = [n for n in range(len(tokens)) if node in branch(parents, n)[:-1]]
        kept, hung = below(parents, node)
        assert list(kept) == under
        check_parents("parents", hung, len(kept))
        base = depths(parents)[node]
        assert depths(hung) == [depths(parents)[n] - base for n in under]
