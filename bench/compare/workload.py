"""What is measured: held-out prompts, sampling, seeds and the ways of decoding."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


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
