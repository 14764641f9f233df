"""Trees of a text's n-grams for one session: what they are made with, and the reference. Pure."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Set
from dataclasses import replace

from foredraft.ngram.params import NgramParams
from foredraft.ngram.tree import NgramTree, ngram_tree

GrowTree = Callable[["array[int]", int, float], NgramTree]
"""grow(text, depth, least): the tree after a text of 32-bit numbers, at most so deep, of the nodes
with at least that probability."""

TreeGrower = Callable[[int, NgramParams, Set[int]], GrowTree]
"""grower(num_nodes, params, stops): how a session's trees grow, of so many nodes at most. A tree is
returned however few of its tokens are expected to be accepted."""


def reference_trees(num_nodes: int, params: NgramParams, stops: Set[int]) -> GrowTree:
    """Return foredraft.ngram.tree.ngram_tree with these settings."""

    def grow(text: array[int], depth: int, least: float) -> NgramTree:
        here = replace(
            params,
            depth=min(depth, params.depth),
            min_node_prob=max(least, params.min_node_prob),
            min_expected_tokens=0.0,
        )
        return ngram_tree(text, num_nodes, here, stops)

    return grow
