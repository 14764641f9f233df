"""What a choice of the target's compares: for audits, which ask by how little two tokens parted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foredraft.noise.gumbel import gumbel
from foredraft.types import SamplingParams
from verifier_service.models.port import Segment, TargetModel, alloc
from verifier_service.rules.sampling import RowSampling, process


def scores(
    model: TargetModel, text: Sequence[int], sampling: SamplingParams, tokens: Sequence[int]
) -> list[float]:
    """Return what the choice after text compares, log p + g, of some tokens.

    Up to one constant for all of them; at temperature 0 it is the logit, and -inf is excluded.
    Raise Overloaded where the KV cache has no room for text.
    """
    blocks = alloc(model, len(text))
    try:
        logits = model.forward([Segment(blocks, 0, text, 1)])
    finally:
        model.pool.give(blocks)
    if sampling.temperature == 0:
        return [float(logits[0, token]) for token in tokens]
    z = process(logits, [RowSampling(sampling, len(text))])[0]
    noise = gumbel(sampling.seed, np.array([len(text)]), np.array([tokens]))[0]
    return [float(z[token] + g) for token, g in zip(tokens, noise, strict=True)]
