"""What evaluation decodes: prompts of code that training never saw, or a file of one's own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from tokenizers import Tokenizer

from deployments.config import model_path
from foredraft.errors import ConfigError
from foredraft.types import SamplingParams

T = TypeVar("T")

TEMPERATURES = (0.0, 0.8)
PromptsOption = Annotated[
    Path | None,
    typer.Option("--prompts", help="JSON lines with a text each; default: held-out code."),
]

_FILE = "models/embedded/heldout_prompts.jsonl"
DEVELOPMENT = frozenset(
    {
        "click.termui",
        "csv",
        "graphlib",
        "networkx.algorithms.cycles",
        "networkx.generators.trees",
        "numpy.polynomial.legendre",
        "sched",
        "sympy.combinatorics.partitions",
        "textwrap",
    }
)
"""The modules whose prompts settings are tried on; reports are on the others'."""


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


def rows(development: bool) -> list[dict[str, str]]:
    """Return held-out prompts, {"id", "module", "text"}, of DEVELOPMENT's modules or the others."""
    with open(model_path(_FILE), encoding="utf-8") as lines:
        found: list[dict[str, str]] = [json.loads(line) for line in lines]
    return [row for row in found if (row["module"] in DEVELOPMENT) == development]


def spread(items: Sequence[T], count: int) -> list[T]:
    """Return at most `count` of the items, evenly over their order."""
    count = min(count, len(items))
    return [items[i * len(items) // count] for i in range(count)]


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
