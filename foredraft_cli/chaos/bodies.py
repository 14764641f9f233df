"""Requests of all kinds: good ones with what plain decoding answers, and bad ones."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

# Of the good ones, the fields that each has beside its prompt.
_KINDS: Sequence[dict[str, Any]] = (
    {"max_tokens": 160, "temperature": 0.0},
    {"max_tokens": 200, "temperature": 0.8},
    {"max_tokens": 60, "temperature": 1.0, "n": 3, "top_p": 0.9},
    {"max_tokens": 90, "temperature": 0.7, "repetition_penalty": 1.2, "logprobs": 2},
    {"max_tokens": 60, "temperature": 0.8, "structured_outputs": {"regex": "[a-z ]{20,60}"}},
    {"max_tokens": 120, "temperature": 0.8, "speculative": {"proposal": "coupled"}},
)
REGEX_BOMB: dict[str, Any] = {
    "prompt": "x",
    "n": 16,
    "structured_outputs": {"regex": "(a{1000}){1000}"},
}
GRAMMAR_BOMB: dict[str, Any] = {
    "prompt": "x",
    "n": 8,
    "structured_outputs": {"grammar": 'start: a\na: a a | a | "x"'},
}
_BOMBS: Sequence[dict[str, Any]] = (
    REGEX_BOMB,
    GRAMMAR_BOMB,
    {"prompt": "a" * 1_000_000},
    {"prompt": ["b c " * 5000] * 30},
    {"prompt": "x", "max_tokens": 1 << 40},
    {"prompt": "\ud800", "top_k": 1 << 40},
    {"prompt": [1 << 30], "logit_bias": {"-1": 1000}},
    {"prompt": "x", "n": 16, "max_tokens": 1900, "ignore_eos": True},
)


def good(prompts: Sequence[str]) -> list[dict[str, Any]]:
    """Return a request for each prompt, of all kinds in turn, each with a seed of its own."""
    return [
        {"prompt": prompt, "seed": 100 + at, "return_token_ids": True, **_KINDS[at % len(_KINDS)]}
        for at, prompt in enumerate(prompts)
    ]


def plain(body: dict[str, Any]) -> dict[str, Any]:
    """Return the same request without drafts."""
    return body | {"speculative": {"enabled": False}}


def bomb(random: Random) -> dict[str, Any]:
    """Return a request that would be too much for a server that is not careful."""
    return random.choice(_BOMBS)
