"""What evaluation decodes: prompts of code that training never saw, or a file of one's own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from tokenizers import Tokenizer

from deployments.config import model_path
from foredraft.errors import ConfigError
from foredraft.types import SamplingParams

TEMPERATURES = (0.0, 0.8)
PromptsOption = Annotated[
    Path | None,
    typer.Option("--prompts", help="JSON lines with a text each; default: held-out code."),
]

_FILE = "models/embedded/heldout_prompts.jsonl"


def prompts(count: int, file: Path | None = None) -> list[str]:
    """Return `count` held-out prompts spread evenly over the file, which is ordered by module.

    file is JSON lines with a text each, by default those for the embedded pair. Raise ConfigError
    where it is not.
    """
    try:
        with open(file or model_path(_FILE), encoding="utf-8") as lines:
            texts = [str(json.loads(line)["text"]) for line in lines]
    except (OSError, ValueError, KeyError, TypeError):
        raise ConfigError(
            f"prompts: {file} is no file of JSON lines with a text", param="prompts"
        ) from None
    return spread(texts, count)


def spread(texts: Sequence[str], count: int) -> list[str]:
    """Return at most `count` of the texts, evenly over their order."""
    count = min(count, len(texts))
    return [texts[i * len(texts) // count] for i in range(count)]


def fitted(text: str, tokenizer: Tokenizer, max_len: int, max_tokens: int) -> tuple[int, ...]:
    """Return a prompt's last token ids: at most max_len, the target's room, less max_tokens.

    Raise ConfigError where that is none.
    """
    room = max_len - max_tokens
    if room < 1:
        raise ConfigError(
            f"max_tokens is {max_tokens}; the target holds {max_len}", param="max_tokens"
        )
    return tuple(tokenizer.encode(text).ids[-room:])


def sampling(temperature: float, index: int) -> SamplingParams:
    """Return the sampling of the index-th prompt; every way of decoding uses the same seed."""
    return SamplingParams(temperature=temperature, seed=1000 + index)
