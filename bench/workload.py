"""What is measured: held-out prompts, sampling, seeds and the ways of decoding."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from deployments.config import model_path
from foredraft.types import SamplingParams

PROMPTS = "models/embedded/heldout_prompts.jsonl"
TEMPERATURES = (0.0, 0.8)


@dataclass(frozen=True, slots=True)
class Mode:
    """A way of decoding: its row name and the request's `speculative` object."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)


PLAIN = Mode("plain", {"enabled": False})


def dlm(proposal: str, k: int | None = None) -> Mode:
    """Return decoding with the diffusion drafter: a proposal, at a fixed length if k is given."""
    options: dict[str, Any] = {"proposal": proposal}
    name = f"dlm {proposal}"
    if k is not None:
        options["adl"] = {"name": "fixed", "k": k}
        name += f" k={k}"
    return Mode(name, options)


def prompts(count: int) -> list[str]:
    """Return `count` held-out prompts spread evenly over the file, which is ordered by module."""
    with open(model_path(PROMPTS), encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for line in lines]
    return [texts[i * len(texts) // count] for i in range(min(count, len(texts)))]


def sampling(temperature: float, index: int) -> SamplingParams:
    """Return the sampling of the index-th prompt; every way of decoding uses the same seed."""
    return SamplingParams(temperature=temperature, seed=1000 + index)
