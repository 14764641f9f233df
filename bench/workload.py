"""What is measured: held-out prompts, sampling, seeds and the ways of decoding."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from foredraft.types import SamplingParams

TEMPERATURES = (0.0, 0.8)


@dataclass(frozen=True, slots=True)
class Mode:
    """A way of decoding: its row name and the request's `speculative` object."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)


PLAIN = Mode("plain", {"enabled": False})
LOOKUP = Mode("n-gram lookup", {"proposal": "lookup"})


def dlm(proposal: str, k: int | None = None) -> Mode:
    """Return decoding with the diffusion drafter: a proposal, at a fixed length if k is given."""
    options: dict[str, Any] = {"proposal": proposal}
    name = f"dlm {proposal}"
    if k is not None:
        options["adl"] = {"name": "fixed", "k": k}
        name += f" k={k}"
    return Mode(name, options)


def sampling(temperature: float, index: int) -> SamplingParams:
    """Return the sampling of the index-th prompt; every way of decoding uses the same seed."""
    return SamplingParams(temperature=temperature, seed=1000 + index)
