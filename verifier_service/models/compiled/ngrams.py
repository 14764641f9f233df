"""The compiled n-gram tree (verifier/ngram_tree.c): the tree of foredraft.ngram.tree, sooner."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Set
from functools import partial

from foredraft.ngram.params import NgramParams
from foredraft.ngram.tree import NgramTree
from foredraft_kernels.loader import load_kernels
from foredraft_kernels.structs import NgramText
from verifier_service.rules.ngrams import TreeGrower, reference_trees

# Where other threads wait for it, to give the GIL back and take it again takes longer than a tree.
_HOLDING_THE_GIL = ctypes.PYFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * 4)


def best_trees() -> TreeGrower:
    """Return the compiled trees where they were built, else the reference."""
    kernels = load_kernels()
    return reference_trees if kernels is None else partial(NativeTrees, kernels)


class NativeTrees:
    """reference_trees in C, into memory of its own."""

    def __init__(
        self, kernels: ctypes.CDLL, num_nodes: int, params: NgramParams, stops: Set[int]
    ) -> None:
        self._grow = _HOLDING_THE_GIL(("fd_ngram_tree", kernels))
        self._params = params
        self._pseudocounts, self._stops = array("d", params.pseudocounts), array("i", stops)
        self._tokens, self._parents = (
            array("i", bytes(4 * num_nodes)),
            array("i", bytes(4 * num_nodes)),
        )
        self._expected = array("d", bytes(8 * num_nodes))
        self._text = NgramText(
            stops=self._stops.buffer_info()[0],
            pseudocounts=self._pseudocounts.buffer_info()[0],
            num_stops=len(stops),
            orders=len(params.pseudocounts),
            window=params.window,
            most=num_nodes,
        )
        found = (self._tokens, self._parents, self._expected)
        places = (each.buffer_info()[0] for each in found)
        self._arguments = (ctypes.addressof(self._text), *places)

    def __call__(self, text: array[int], depth: int, least: float) -> NgramTree:
        described, params = self._text, self._params
        described.text, described.length = text.buffer_info()
        described.depth = min(depth, params.depth)
        described.min_node_prob = max(least, params.min_node_prob)
        count = self._grow(*self._arguments)
        if count < 0:
            raise MemoryError
        tokens, parents = self._tokens[:count], self._parents[:count]
        return NgramTree(tuple(tokens), tuple(parents), tuple(self._expected[:count]))
