"""What is measured: held-out prompts, sampling, seeds and the ways of decoding."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from tokenizers import Tokenizer

from foredraft.errors import ConfigError
from foredraft.types import ModelInfo, SamplingParams

TEMPERATURES = (0.0, 0.8)
PromptsOption = Annotated[
    Path | None,
    typer.Option("--prompts", help="JSON lines with a text each; default: held-out code."),
]


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


def fitted(text: str, tokenizer: Tokenizer, target: ModelInfo, max_tokens: int) -> tuple[int, ...]:
    """Return a prompt's last token ids, as many as leave the target room for max_tokens more.

    Raise ConfigError where that is none.
    """
    room = target.max_len - max_tokens
    if room < 1:
        raise ConfigError(
            f"max_tokens is {max_tokens}; the target holds {target.max_len}", param="max_tokens"
        )
    return tuple(tokenizer.encode(text).ids[-room:])


def sampling(temperature: float, index: int) -> SamplingParams:
    """Return the sampling of the index-th prompt; every way of decoding uses the same seed."""
    return SamplingParams(temperature=temperature, seed=1000 + index)
