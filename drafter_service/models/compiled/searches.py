"""The searches of core/ by compiled code: the same paths and trees but for rounding, sooner."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Sequence

import numpy as np

from drafter_service.proposals.context_ngram import ContextNgram
from drafter_service.proposals.draft_tree import Tree, TreeParams, TreeScores, least_log_mass
from drafter_service.proposals.lattice import BlockScores, Floats
from drafter_service.proposals.path_search import SearchParams
from foredraft_kernels import structs


class _Counted:
    """A text for the searches to count n-grams of up to `order` tokens in; lives as they run."""

    def __init__(self, text: Sequence[int], order: int, window: int, **numbers: float) -> None:
        # The window, and what its first n-gram needs.
        self._tokens = array("i", text[max(0, len(text) - window - order + 1) :])
        length = len(self._tokens)
        self.text = structs.CountedText(
            length=length,
            first=max(0, length - window),
            order=order,
            tokens=self._tokens.buffer_info()[0],
            **numbers,
        )


class NativeBeam:
    """BeamSearch with a Mixture of the edge head and the text's n-grams, by their weights.

    Scores are in single precision, of at most structs.MAX_WIDTH candidates in a slot; n-grams are
    of order structs.MAX_ORDER at most.
    """

    def __init__(
        self,
        kernels: ctypes.CDLL,
        params: SearchParams,
        edge: float,
        context: float,
        ngram: ContextNgram,
    ) -> None:
        self._beam, self._ngram = kernels.fd_beam, ngram
        shares = (edge / (edge + context), context / (edge + context))
        self._settings = structs.BeamSettings(
            params.tau, params.max_candidates, params.beam, params.weight, *shares
        )

    def __call__(
        self,
        scores: BlockScores,
        noise: Floats,
        context: Sequence[int],
        temperature: float,
        eos: int,
    ) -> list[int]:
        """Return the best path (see PathSearch)."""
        slots, width = scores.tokens.shape
        tokens = np.ascontiguousarray(scores.tokens)
        log_q = np.ascontiguousarray(scores.log_q, dtype=np.float32)
        edge = None if scores.edge is None else np.ascontiguousarray(scores.edge, dtype=np.float32)
        noise = np.ascontiguousarray(noise, dtype=np.float64)
        block = structs.BlockScores(
            slots,
            width,
            eos,
            temperature,
            tokens.ctypes.data,
            log_q.ctypes.data,
            None if edge is None else edge.ctypes.data,
            noise.ctypes.data,
        )
        ngram = self._ngram
        known = _Counted(
            context,
            ngram.order,
            ngram.window,
            pseudocount=ngram.pseudocount,
            floor=1.0 / ngram.vocab_size,
        )
        paths = np.empty(2 * slots, dtype=np.int64)
        length = self._beam(
            ctypes.byref(self._settings),
            ctypes.byref(block),
            ctypes.byref(known.text),
            paths.ctypes.data,
        )
        if not length:
            raise MemoryError("no memory for a path search")
        path: list[int] = paths[:length].tolist()
        return path


class NativeTree:
    """draft_tree.grow on scores in single precision; C bounds the pseudocounts."""

    def __init__(self, kernels: ctypes.CDLL) -> None:
        self._tree = kernels.fd_tree

    def __call__(self, scores: TreeScores, num_nodes: int, params: TreeParams, eos: int) -> Tree:
        """Return the tree (see TreeSearch)."""
        slots, parents, width = scores.logits.shape
        tokens = np.ascontiguousarray(scores.tokens)
        logits = np.ascontiguousarray(scores.logits, dtype=np.float32)
        noise = np.ascontiguousarray(scores.noise, dtype=np.float64)
        pseudocounts = array("d", params.pseudocounts)
        known = _Counted(scores.text, len(params.pseudocounts) + 1, params.text_window)
        c_scores = structs.TreeScores(
            min(params.depth, slots),
            params.text_depth,
            width,
            parents,
            eos,
            scores.seed is not None,
            len(scores.text),
            scores.seed or 0,
            scores.confidence_exponent,
            least_log_mass(params),
            tokens.ctypes.data,
            logits.ctypes.data,
            noise.ctypes.data,
            pseudocounts.buffer_info()[0],
            ctypes.pointer(known.text),
        )
        nodes = np.empty((2, num_nodes), dtype=np.int64)
        mass = np.empty(num_nodes)
        at = nodes.ctypes.data
        count = self._tree(
            ctypes.byref(c_scores), num_nodes, at, at + nodes.strides[0], mass.ctypes.data
        )
        if count < 0:
            raise MemoryError("no memory for a draft tree")
        found, before = nodes[:, :count].tolist()
        return Tree(tuple(found), tuple(before), tuple(np.exp(mass[:count]).tolist()))
