"""What one diffusion pass says about a block, and the pruned lattice that a path is searched in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.floating[Any]]

NEVER = -np.inf
"""The score of a candidate that may not be chosen."""


@dataclass(frozen=True, slots=True)
class BlockScores:
    """The best M candidates of each of k slots, best first; EOS is always among them.

    tokens [k, M] are int64 ids. log_q [k, M] are their log-probabilities, normalised over the full
    vocabulary. edge [k, M, M] is what the model adds to log_q[j, c] (up to a constant) when
    candidate p of slot j - 1 was chosen, edge[j, p, c]; the rows of edge[0] are all for the last
    token of the prefix. None where the family has no edge head.
    """

    tokens: Ints
    log_q: Floats
    edge: Floats | None = None


@dataclass(frozen=True, slots=True)
class Lattice:
    """A pruned BlockScores of depth d and width w; unused places have log_q = NEVER.

    noise [d, w] is added, unweighted, to whatever score a search gives a candidate: zero at
    temperature 0, else the noise that the target will add too. eos_tail[i] is what a path that
    chose EOS at slot i - 1 earns at slots i..d-1 for filling them with EOS: ([d + 1], log_q part)
    and ([d + 1], noise part).
    """

    tokens: Ints
    log_q: Floats
    noise: Floats
    edge: Floats | None
    eos_tail: tuple[Floats, Floats]


def first_eos(tokens: Ints, eos: int) -> int:
    """Return s_t of DiffuSpec Eq. 8: the 1-based slot of the first EOS in tokens [k], or k + 1."""
    hits = np.flatnonzero(tokens == eos)
    return int(hits[0]) + 1 if hits.size else len(tokens) + 1


def generated_len(scores: BlockScores, num_tokens: int, eos: int) -> int:
    """Return L_gen = min(s_t - 1, k_t) of the raw draft (DiffuSpec Eq. 8)."""
    return first_eos(scores.tokens[:num_tokens, 0], eos) - 1


def prune(
    scores: BlockScores,
    noise: Floats,
    temperature: float,
    tau: float,
    max_candidates: int,
    eos: int,
) -> Lattice:
    """Return the lattice of DiffuSpec Sec. 4.2: mass-adaptive width, EOS kept, ends at EOS.

    Slot i keeps its best M_i candidates, M_i the fewest whose mass reaches tau (Eq. 6), capped at
    max_candidates, and EOS. The lattice ends with the first slot whose best candidate is EOS.
    Above temperature 0 the target chooses by log p / T + noise, so mass and rank are those of the
    perturbed scores, normalised over the candidates; noise [k, M] may hold NEVER.
    """
    if temperature == 0.0:
        tokens, log_q, sorted_noise, edge = scores.tokens, scores.log_q, noise, scores.edge
        mass = np.exp(log_q)
    else:
        perturbed = scores.log_q / temperature + noise
        order = np.argsort(-perturbed, axis=1, kind="stable")
        tokens, log_q, sorted_noise, edge = _reorder(scores, noise, order)
        mass = np.exp(np.take_along_axis(perturbed, order, 1) - np.max(perturbed, 1, keepdims=True))
        mass /= mass.sum(1, keepdims=True)
    depth = min(first_eos(tokens[:, 0], eos), len(tokens))
    tokens, log_q, sorted_noise = tokens[:depth], log_q[:depth], sorted_noise[:depth]
    mass = mass[:depth]
    # A candidate is kept while the mass before it has not reached tau.
    reached = np.cumsum(mass, axis=1) - mass >= tau
    reached[:, 0] = False
    reached[:, max_candidates:] = True
    is_eos = tokens == eos
    dropped = reached & ~is_eos
    width = tokens.shape[1] - int(dropped.sum(1).min())
    columns = np.argsort(dropped, axis=1, kind="stable")[:, :width]
    log_q_kept = np.where(dropped, NEVER, log_q)
    kept_edge = None if edge is None else _reorder_edge(edge[:depth], columns)
    tail = tuple(
        np.concatenate((np.where(is_eos, part, 0.0).sum(1)[::-1].cumsum()[::-1], [0.0]))
        for part in (log_q, sorted_noise)
    )
    return Lattice(
        np.take_along_axis(tokens, columns, 1),
        np.take_along_axis(log_q_kept, columns, 1),
        np.take_along_axis(sorted_noise, columns, 1),
        kept_edge,
        (tail[0], tail[1]),
    )


def _reorder(
    scores: BlockScores, noise: Floats, order: Ints
) -> tuple[Ints, Floats, Floats, Floats | None]:
    edge = None if scores.edge is None else _reorder_edge(scores.edge, order)
    return (
        np.take_along_axis(scores.tokens, order, 1),
        np.take_along_axis(scores.log_q, order, 1),
        np.take_along_axis(noise, order, 1),
        edge,
    )


def _reorder_edge(edge: Floats, columns: Ints) -> Floats:
    """Return edge with each slot's candidates, and its predecessor's, picked by columns [k, w]."""
    # Slot 0 has no predecessor in the block; its rows are all alike.
    before = np.concatenate((columns[:1], columns[:-1]))
    slots = np.arange(len(columns))[:, None, None]
    return edge[slots, before[:, :, None], columns[:, None, :]]
