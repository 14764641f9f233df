"""What a row's token is likeliest to be: guesses, so in single precision."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import torch

from foredraft.noise.gumbel import gumbel_single, hash_torch
from foredraft.noise.streams import stream_key
from verifier_service.rules.sampling import RowSampling, process

# Does what `likeliest` does.
Guesses = Callable[["npt.NDArray[np.float32]", Sequence[RowSampling], int], list[list[int]]]


def likeliest(
    logits: npt.NDArray[np.float32], draws: Sequence[RowSampling], count: int
) -> list[list[int]]:
    """Return the `count` tokens of each row of logits [rows, vocabulary] with the greatest
    log p / T + g, best first; fewer where others cannot be drawn.

    g is the noise that the row is drawn with, 0 at temperature 0.
    """
    if not draws:
        return []
    scores = torch.from_numpy(np.array(logits))
    drawn = [row for row, draw in enumerate(draws) if draw.sampling.temperature > 0]
    if drawn:
        subset = [draws[row] for row in drawn]
        z = torch.from_numpy(process(logits[drawn], subset)).float()
        scores[drawn] = z + _noise(subset, z.shape[1])
    best, tokens = scores.topk(min(count, scores.shape[1]), dim=-1)
    # Tokens that cannot be drawn are the last ones.
    kept = (best > -torch.inf).sum(dim=-1).tolist()
    return [row[:most] for row, most in zip(tokens.tolist(), kept, strict=True)]


def _noise(draws: Sequence[RowSampling], vocabulary: int) -> torch.Tensor:
    """Return g of every token in each row [rows, vocabulary]."""
    keys = torch.tensor([[stream_key(draw.sampling.seed, draw.position)] for draw in draws])
    return gumbel_single(hash_torch(keys, torch.arange(vocabulary)))
