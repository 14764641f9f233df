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
LOOKUP = Mode("n-gram lookup", {"proposal": "lookup", "ngram": {"enabled": False}})


def dlm(name: str, k: int | None = None) -> Mode:
    """Return decoding with the diffusion drafter, at a fixed length if k is given.

    name is a proposal, or one after "ngram+": the text's own n-grams draft first.
    """
    first, _, rest = name.rpartition("+")
    options: dict[str, Any] = {"proposal": rest, "ngram": {"enabled": first == "ngram"}}
    row = f"dlm {name}"
    if k is not None:
        options["adl"] = {"name": "fixed", "k": k}
        row += f" k={k}"
    return Mode(row, options)
