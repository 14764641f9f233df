"""What a backoff n-gram model says of the words of a text, as it is defined."""

from __future__ import annotations

import numpy as np

from training.proxy.arpa import BackoffModel, Floats, Ints, windows


def log_probs(model: BackoffModel, rows: list[Ints]) -> Floats:
    """log10 p of every word of every row after the words before it in its row; not of <s>."""
    order, base = len(model.orders), model.words.base
    keys = windows(rows, model.words, order)
    keys = keys[keys % base != model.words.begin]
    scores = model.orders[0].log_probs[keys % base]
    for length in range(2, order + 1):
        window = keys % base**length
        above, below = model.orders[length - 1], model.orders[length - 2]
        if not len(above.keys):
            break
        context, known = below.find(window // base)
        scores = scores + np.where(known, below.backoffs[context], 0.0)
        entry, listed = above.find(window)
        scores = np.where(listed, above.log_probs[entry], scores)
    return scores
