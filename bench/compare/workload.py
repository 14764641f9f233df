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
# The configuration file as it is.
AS_CONFIGURED = Mode("as configured")
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


@dataclass(frozen=True, slots=True)
class Plan:
    """How much of a pair is measured.

    count prompts of each set, max_tokens of each answer, and how many prompts `transformers` gets;
    at 0 the pair is measured in the cluster alone.
    """

    count: int
    max_tokens: int
    peer_prompts: int
    modes: tuple[Mode, ...]


def plan(chat: bool, quick: bool) -> Plan:
    """Return the plan of a pair, whose target is a chat model or continues text."""
    if chat:
        modes = [AS_CONFIGURED, dlm("tree"), LOOKUP] + ([] if quick else [dlm("coupled")])
        return Plan(8, 96, 0, tuple(modes)) if quick else Plan(40, 256, 8, tuple(modes))
    names = ["ngram+tree", "tree", "coupled"] + ([] if quick else ["cps", "argmax", "ar"])
    modes = [*map(dlm, names), LOOKUP]
    return Plan(12, 96, 4, tuple(modes)) if quick else Plan(48, 128, 16, tuple(modes))
