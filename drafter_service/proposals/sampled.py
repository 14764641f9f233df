"""Drafts that are drawn from their own q, for the rules min(1, p/q) and block verification. Pure.

Those rules are exact for the q that a token was really drawn from, and for draws that are
independent of the target's noise. So q is rounded to integers first, the draw is made from exactly
these, and its randomness is a substream of its own.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from drafter_service.proposals.lattice import BlockScores, Floats, Ints
from drafter_service.proposals.proposals import Drafted, coupled_path, process, split_path
from foredraft.noise.streams import DRAFT, substream, uniform
from foredraft.types import Candidates, SamplingParams

TOTAL = 1 << 16
"""What each token's weights sum to: a power of two, which divides the noise's 2^52 outcomes."""


def sampled_path(
    scores: BlockScores,
    num_tokens: int,
    eos: int,
    sampling: SamplingParams,
    position: int,
    prefix_len: int,
    most: int,
) -> Drafted:
    """Return the path that is drawn token by token from q, with q (DEER Eq. 5, SpecDiff Alg. 1).

    q_j = softmax((log q + edge after the token just drawn) / T) over slot j's candidates, with the
    target's filters, its `most` best candidates, in weights that sum to TOTAL; slot j is at
    position + j. prefix_len is that of the whole block, whose draws are fresh for each prefix. The
    guess, which no rule reads, is the likeliest token. At temperature 0 the path is the likeliest
    one and q, one-hot, is left out.
    """
    if sampling.temperature == 0:
        return coupled_path(scores, num_tokens, eos, sampling, position)
    stream = substream(sampling.seed, DRAFT, prefix_len)
    path: list[int] = []
    q: list[Candidates] = []
    chosen = 0
    for slot, row in enumerate(scores.tokens):
        logits = scores.log_q[slot]
        if scores.edge is not None:
            logits = logits + scores.edge[slot, chosen]
        columns, weights = quantise(process(logits, sampling), most)
        place = draw(weights, uniform(stream, position + slot)) if slot < num_tokens else 0
        chosen = int(columns[place])
        path.append(int(row[chosen]))
        q.append(Candidates(tuple(row[columns].tolist()), tuple(weights.tolist())))
        if path[-1] == eos:
            break
    drafted = split_path(path, scores, num_tokens, eos)
    return replace(drafted, q=tuple(q[: len(drafted.tokens)]))


def quantise(logits: Floats, most: int) -> tuple[Ints, Ints]:
    """Return the columns of the `most` best logits [M], best first, and their integer weights.

    The weights are the softmax over these columns, each rounded by less than one of TOTAL, which
    is their sum; columns without weight are left out.
    """
    columns = np.argsort(-logits, kind="stable")[:most]
    kept = logits[columns].astype(np.float64)
    mass = np.cumsum(np.exp(kept - kept[0]))
    # Rounding the sums, not the parts, keeps the total.
    weights = np.diff(np.rint(mass / mass[-1] * TOTAL).astype(np.int64), prepend=0)
    return columns[weights > 0], weights[weights > 0]


def draw(weights: Ints, u: float) -> int:
    """Return index i with probability weights[i] / TOTAL, exactly, for u uniform in (0, 1)."""
    return int(np.searchsorted(np.cumsum(weights), int(u * TOTAL), side="right"))
