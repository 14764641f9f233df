"""What one diffusion pass gives for a block, and the pruned lattice that a path is searched in."""

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
    """M candidates of each of k slots, the likeliest first; EOS is always among them.

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
    slots = np.arange(len(scores.tokens))[:, None]
    log_q = scores.log_q.astype(np.float64)
    if temperature == 0.0:
        order = np.broadcast_to(np.arange(scores.tokens.shape[1]), scores.tokens.shape)
        tokens, mass = scores.tokens, np.exp(log_q)
    else:
        perturbed = log_q / temperature + noise
        order = np.argsort(-perturbed, axis=1, kind="stable")
        tokens, perturbed = scores.tokens[slots, order], perturbed[slots, order]
        mass = np.exp(perturbed - perturbed[:, :1])
        mass /= mass.sum(1, keepdims=True)
    depth = min(first_eos(tokens[:, 0], eos), len(tokens))
    slots = slots[:depth]
    # A candidate is kept while the mass before it has not reached tau; all of the mass takes all of
    # them, whatever rounding makes of its sum.
    dropped = (np.cumsum(mass, axis=1) - mass >= (tau if tau < 1.0 else np.inf))[:depth]
    dropped[:, 0] = False
    dropped[:, max_candidates:] = True
    dropped &= tokens[:depth] != eos
    width = tokens.shape[1] - int(dropped.sum(1).min())
    kept_first = np.argsort(dropped, axis=1, kind="stable")[:, :width]
    columns = order[slots, kept_first]
    is_eos = scores.tokens[:depth] == eos
    return Lattice(
        scores.tokens[slots, columns],
        np.where(dropped[slots, kept_first], NEVER, log_q[slots, columns]),
        noise[slots, columns],
        None if scores.edge is None else _pick_edges(scores.edge, columns),
        (_tail(log_q[:depth], is_eos), _tail(noise[:depth], is_eos)),
    )


def _tail(values: Floats, is_eos: npt.NDArray[np.bool_]) -> Floats:
    """Return, for each slot and the end, the sum of EOS's values [d, M] from there on: [d + 1]."""
    each = np.where(is_eos, values, 0.0).sum(1)
    return np.append(each[::-1].cumsum()[::-1], 0.0)


def _pick_edges(edge: Floats, columns: Ints) -> Floats:
    """Return edge with each slot's candidates, and its predecessor's, picked by columns [d, w]."""
    # Slot 0 has no predecessor in the block; its rows are all alike.
    before = np.concatenate((columns[:1], columns[:-1]))
    slots = np.arange(len(columns))[:, None, None]
    return edge[slots, before[:, :, None], columns[:, None, :]]
