"""How probable the target found the tokens of a text, from its own logits. Pure."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from foredraft.types import TokenLogprobs


def token_logprobs(row: npt.NDArray[np.float32], token: int, count: int) -> TokenLogprobs:
    """Return a token's logprob and rank in logits [vocabulary], and the count likeliest tokens.

    Among equal ones the lowest token id comes first.
    """
    best = row.max()
    shifted = row.astype(np.float64) - best
    logprobs = shifted - np.log(np.exp(shifted).sum())
    count = min(count, row.size)
    top: tuple[tuple[int, float], ...] = ()
    if count:
        # A partition first: sorting the vocabulary would cost more than the forward of a row.
        least = np.partition(row, row.size - count)[row.size - count]
        near = np.flatnonzero(row >= least)
        order = near[np.argsort(-row[near], kind="stable")][:count]
        top = tuple((int(t), float(logprobs[t])) for t in order)
    rank = int((row >= row[token]).sum())
    return TokenLogprobs(float(logprobs[token]), rank, top)
