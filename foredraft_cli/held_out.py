"""What evaluation decodes: prompts of code that training never saw, temperatures, seeds."""

from __future__ import annotations

import json

from deployments.config import model_path
from foredraft.types import SamplingParams

TEMPERATURES = (0.0, 0.8)

_FILE = "models/embedded/heldout_prompts.jsonl"


def prompts(count: int) -> list[str]:
    """Return `count` held-out prompts spread evenly over the file, which is ordered by module."""
    with open(model_path(_FILE), encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for line in lines]
    count = min(count, len(texts))
    return [texts[i * len(texts) // count] for i in range(count)]


def sampling(temperature: float, index: int) -> SamplingParams:
    """Return the sampling of the index-th prompt; every way of decoding uses the same seed."""
    return SamplingParams(temperature=temperature, seed=1000 + index)
