"""What DiffuSpec's acceptance reads as q: the distribution at each slot of the draft. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from drafter_service.proposals.lattice import BlockScores
from drafter_service.proposals.proposals import process
from drafter_service.proposals.sampled import quantise
from foredraft.types import Candidates, SamplingParams


def marginals(
    scores: BlockScores, tokens: Sequence[int], sampling: SamplingParams, most: int
) -> tuple[Candidates, ...]:
    """Return q^L2R of a path's tokens (DiffuSpec Eq. 5), one for each.

    Eq. 5 masks the i - 1 slots before token i and the k - i + 1 from it on: all k of them. So it is
    the slot's marginal in the pass that made the draft, with the target's temperature and filters:
    the `most` best candidates as integer weights. A token that is not among them takes the last
    one's place, with the least weight.
    """
    found = []
    for token, ids, log_q in zip(tokens, scores.tokens, scores.log_q, strict=False):
        columns, weights = quantise(process(log_q, sampling), most)
        own = int((ids == token).argmax())
        if own not in columns:
            columns = np.append(columns[: most - 1], own)
            weights = np.append(weights[: most - 1], 1)
        found.append(Candidates(tuple(ids[columns].tolist()), tuple(weights.tolist())))
    return tuple(found)
