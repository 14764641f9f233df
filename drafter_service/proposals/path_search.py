"""Causal-consistency path search: a left-to-right beam over the lattice (DiffuSpec Sec. 4.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from drafter_service.proposals.causal_scorer import BlockScorer, CausalScorer, Path
from drafter_service.proposals.lattice import NEVER, BlockScores, Floats, Lattice, prune


@dataclass(frozen=True, slots=True)
class SearchParams:
    """How a path is searched: Eq. 6's tau and M_max, Eq. 7's lambda, the beam's width B."""

    tau: float = 0.8
    max_candidates: int = 15
    weight: float = 0.3
    beam: int = 3


class PathSearch(Protocol):
    """Finds a path through a block."""

    def __call__(
        self,
        scores: BlockScores,
        noise: Floats,
        context: Sequence[int],
        temperature: float,
        eos: int,
    ) -> list[int]:
        """Return the best path over the pruned lattice; noise [k, M], context is the whole text."""


class BeamSearch:
    """beam_search by any causal proxy."""

    def __init__(self, scorer: CausalScorer, params: SearchParams) -> None:
        self._scorer, self._params = scorer, params

    def __call__(
        self,
        scores: BlockScores,
        noise: Floats,
        context: Sequence[int],
        temperature: float,
        eos: int,
    ) -> list[int]:
        """Return beam_search's path."""
        params = self._params
        lattice = prune(scores, noise, temperature, params.tau, params.max_candidates, eos)
        bound = self._scorer.bind(lattice, context)
        return beam_search(lattice, bound, params, temperature, eos)


def beam_search(
    lattice: Lattice, scorer: BlockScorer, params: SearchParams, temperature: float, eos: int
) -> list[int]:
    """Return the best path: token ids up to the lattice's depth or the first EOS, inclusive.

    A path earns the sum over its slots of [lambda log q + (1 - lambda) log ng] / T + noise: Eq. 7
    at temperature 0, where T counts as 1. Eq. 7 sums over paths of unequal length, which would
    reward an early EOS for every slot it leaves out; as a diffusion model fills a finished block
    with EOS, a path that ended earns log q(EOS) at the remaining slots, of which the causal proxy
    knows nothing.
    """
    scale = 1.0 / temperature if temperature > 0 else 1.0
    causal = (1.0 - params.weight) * scale
    # Not a plain product: a weight of 0 must leave unused places unusable.
    usable = lattice.log_q > NEVER
    node = np.where(usable, lattice.log_q, 0.0) * (params.weight * scale)
    node = np.where(usable, node + lattice.noise, NEVER)
    tail = lattice.eos_tail[0] * scale + lattice.eos_tail[1]
    tokens = lattice.tokens.tolist()
    ended: list[tuple[float, Path]] = []
    paths: list[Path] = [()]
    totals: Floats = np.zeros(1)
    parents = np.zeros(1, dtype=np.int64)
    for slot, row in enumerate(tokens):
        scores = np.log(scorer.step(slot, paths, parents))
        scores *= causal
        scores += node[slot]
        scores += totals[:, None]
        if eos in row:
            column = scores[:, row.index(eos)]
            winner = int(column.argmax())
            ended.append((float(column[winner] + tail[slot + 1]), (*paths[winner], eos)))
            column.fill(NEVER)
        flat = scores.ravel()
        chosen = np.argsort(-flat, kind="stable")[: params.beam]
        totals = flat[chosen]
        if totals[0] == NEVER:
            return list(max(ended)[1])
        beams, parents = np.divmod(chosen, len(row))
        paths = [(*paths[b], row[c]) for b, c in zip(beams.tolist(), parents.tolist(), strict=True)]
    best = max(ended, default=(NEVER, ()))
    return list(best[1] if best[0] > totals[0] else paths[0])
