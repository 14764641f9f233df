"""Causal proxies for path search: the l^ng of DiffuSpec Eq. 7, behind one port."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from drafter_service.proposals.lattice import Floats, Ints, Lattice

Path = tuple[int, ...]

LEAST = 1e-30
"""The least probability of anything: its logarithm is finite."""


class BlockScorer(Protocol):
    """A causal proxy bound to one prefix and one lattice."""

    def step(self, slot: int, paths: Sequence[Path], parents: Ints) -> Floats:
        """Return probabilities [B, w] of the slot's candidates after each of B paths.

        paths hold the tokens chosen at slots 0..slot-1, parents [B] the column of the last one (0
        at slot 0). Every probability is above 0; those of unused places are not read. The array
        is the caller's to change.
        """


class CausalScorer(Protocol):
    """Scores a token from the tokens before it."""

    def bind(self, lattice: Lattice, context: Sequence[int]) -> BlockScorer:
        """Return the scorer of one block; context holds the prefix's last tokens, oldest first."""


class Uniform:
    """No opinion: every candidate after every path is alike."""

    def bind(self, lattice: Lattice, context: Sequence[int]) -> BlockScorer:
        """Return a scorer of ones."""
        return _Constant(lattice.tokens.shape[1])


class _Constant:
    def __init__(self, width: int) -> None:
        self._width = width

    def step(self, slot: int, paths: Sequence[Path], parents: Ints) -> Floats:
        return np.ones((len(paths), self._width))


class EdgeScorer:
    """The model's own edge head: softmax(log q + edge) over the lattice's candidates.

    Without an edge head it is q, normalised over the candidates.
    """

    def bind(self, lattice: Lattice, context: Sequence[int]) -> BlockScorer:
        """Return the scorer of the lattice's edges; the context is already in edge[0]."""
        logits = lattice.log_q[:, None, :]
        if lattice.edge is not None:
            logits = logits + lattice.edge
        p = np.exp(logits - logits.max(axis=2, keepdims=True))
        p /= p.sum(axis=2, keepdims=True)
        return _Table(np.maximum(p, LEAST))


class _Table:
    def __init__(self, probabilities: Floats) -> None:
        self._probabilities = probabilities

    def step(self, slot: int, paths: Sequence[Path], parents: Ints) -> Floats:
        table: Floats = self._probabilities[slot]
        # Without edges there is one row for all parents.
        rows: Floats = table[parents if len(table) > 1 else np.zeros_like(parents)]
        return rows


class Mixture:
    """Linear interpolation: the weighted sum of the parts' probabilities."""

    def __init__(self, parts: Sequence[tuple[float, CausalScorer]]) -> None:
        total = sum(weight for weight, _ in parts)
        self._parts = [(weight / total, scorer) for weight, scorer in parts]

    def bind(self, lattice: Lattice, context: Sequence[int]) -> BlockScorer:
        """Return the mixture of the parts bound to the same block."""
        return _BoundMixture([(w, scorer.bind(lattice, context)) for w, scorer in self._parts])


class _BoundMixture:
    def __init__(self, parts: Sequence[tuple[float, BlockScorer]]) -> None:
        self._parts = parts

    def step(self, slot: int, paths: Sequence[Path], parents: Ints) -> Floats:
        (weight, part), *rest = self._parts
        total = part.step(slot, paths, parents)
        total *= weight
        for weight, part in rest:
            total += weight * part.step(slot, paths, parents)
        return total
