"""Causal-consistency path search: a left-to-right beam over the lattice (DiffuSpec Sec. 4.2)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from drafter_service.core.causal_scorer import BlockScorer
from drafter_service.core.lattice import NEVER, Floats, Lattice


@dataclass(frozen=True, slots=True)
class SearchParams:
    """How a path is searched: Eq. 6's tau and M_max, Eq. 7's lambda, the beam's width B."""

    tau: float = 0.8
    max_candidates: int = 15
    weight: float = 0.3
    beam: int = 3


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
    # Not a plain product: a weight of 0 must leave unused places unusable.
    usable = lattice.log_q > NEVER
    node = np.where(usable, lattice.log_q, 0.0) * (params.weight * scale)
    node = np.where(usable, node + lattice.noise, NEVER)
    tail = lattice.eos_tail[0] * scale + lattice.eos_tail[1]
    causal = (1.0 - params.weight) * scale
    is_eos = lattice.tokens == eos
    has_eos = is_eos.any(axis=1).tolist()
    tokens = lattice.tokens.tolist()
    best_ended: tuple[float, tuple[int, ...]] = (NEVER, ())
    paths: list[tuple[int, ...]] = [()]
    totals: Floats = np.zeros(1)
    parents = np.zeros(1, dtype=np.int64)
    for slot, row in enumerate(tokens):
        scores = totals[:, None] + node[slot] + causal * scorer.step(slot, paths, parents)
        if has_eos[slot]:
            at = int(np.flatnonzero(is_eos[slot])[0])
            ended = scores[:, at] + tail[slot + 1]
            winner = int(np.argmax(ended))
            if ended[winner] > best_ended[0]:
                best_ended = (float(ended[winner]), (*paths[winner], eos))
            scores[:, at] = NEVER
        flat = scores.ravel()
        chosen = np.argsort(-flat, kind="stable")[: params.beam]
        chosen = chosen[flat[chosen] > NEVER]
        if not chosen.size:
            return list(best_ended[1])
        beams, parents = np.divmod(chosen, len(row))
        paths = [(*paths[b], row[c]) for b, c in zip(beams.tolist(), parents.tolist(), strict=True)]
        totals = flat[chosen]
    return list(best_ended[1] if best_ended[0] > totals[0] else paths[0])
