"""Requests whose options meet each other: every pair of values occurs in one of them at least."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, count, cycle, product
from typing import Any

from foredraft.types import Proposal, WarmupProposal

_JSON = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
_NOT_EXTENDED = (Proposal.TREE, Proposal.AR, Proposal.LOOKUP)

Pair = tuple[tuple[str, int], tuple[str, int]]
"""Two options with their values' places."""

OPTIONS: Mapping[str, Sequence[Any]] = {
    "temperature": (0.0, 0.3, 0.8, 1.3),
    "top_k": (0, 20),
    "top_p": (1.0, 0.9),
    "min_p": (0.0, 0.05),
    "presence_penalty": (0.0, 0.6),
    "frequency_penalty": (0.0, -0.4),
    "repetition_penalty": (1.0, 1.2),
    "logit_bias": ({}, {"30": -8.0, "40": 3.0}),
    "min_tokens": (0, 12),
    "stop": ([], ["\n\n", "return"]),
    "ignore_eos": (False, True),
    "n": (1, 2),
    "logprobs": (None, 0, 3),
    "structured_outputs": (None, {"regex": r"[a-z ,]{8,60}"}, {"json": _JSON}),
    "proposal": tuple(Proposal),
    "ngram": ({"enabled": False}, {"enabled": True}),
    "adl": (
        {"name": "fixed", "k": 1},
        {"name": "fixed", "k": 4},
        {"name": "fixed", "k": 12},
        {"name": "diffuspec"},
        {"name": "acceptance"},
    ),
    "draft": (
        {},
        {"extend": True},
        {"warmup_proposal": WarmupProposal.LOOKUP, "warmup_tokens": 8},
        {"warmup_proposal": WarmupProposal.AR, "warmup_tokens": 8},
    ),
    "verifier_led_rounds": (0, 8),
}
"""The values of each option of a completion request; the last five are of its `speculative`."""

_SPECULATIVE = ("proposal", "ngram", "adl", "draft", "verifier_led_rounds")


def rows() -> list[dict[str, Any]]:
    """Return rows of a value for each option in which all pairs occur that go together.

    Greedily: a row begins with a pair that is missing, and takes the values that bring most others.
    """
    missing = dict.fromkeys(_all_pairs())
    found = []
    while missing:
        row = dict(next(iter(missing)))
        for name in sorted(OPTIONS.keys() - row.keys(), key=list(OPTIONS).index):
            fitting = [place for place in range(len(OPTIONS[name])) if fits(row | {name: place})]
            brought = [sum(p in missing for p in pairs_with(row, name, at)) for at in fitting]
            row[name] = fitting[brought.index(max(brought))]
        for name in row:
            others = {other: place for other, place in row.items() if other != name}
            for pair in pairs_with(others, name, row[name]):
                missing.pop(pair, None)
        found.append({name: values[row[name]] for name, values in OPTIONS.items()})
    return found


def bodies(texts: Sequence[str], max_tokens: int, least: int) -> list[dict[str, Any]]:
    """Return at least so many requests: all rows, again and again, each with the next text."""
    covering, prompts = rows(), cycle(texts)
    seeds = count(5000)
    found: list[dict[str, Any]] = []
    while len(found) < least:
        found += [_body(row, next(prompts), max_tokens, next(seeds)) for row in covering]
    return found


def described(body: Mapping[str, Any]) -> str:
    """Return a request's options that are not an option's first value, as JSON."""
    flat = {**body, **body.get("speculative", {})}
    chosen = {
        name: flat[name]
        for name, values in OPTIONS.items()
        if name in flat and flat[name] != values[0]
    }
    return json.dumps(chosen)


def _body(row: Mapping[str, Any], prompt: str, max_tokens: int, seed: int) -> dict[str, Any]:
    plain = {name: value for name, value in row.items() if name not in _SPECULATIVE}
    asked = {name: row[name] for name in _SPECULATIVE}
    own = {"prompt": prompt, "max_tokens": max_tokens, "seed": seed}
    return {**own, **{k: v for k, v in plain.items() if v is not None}, "speculative": asked}


def fits(places: Mapping[str, int]) -> bool:
    """Return whether values go together, each named by its place; others are refused by name."""
    row = {name: OPTIONS[name][place] for name, place in places.items()}
    if row.get("structured_outputs") is not None and row.get("min_tokens"):
        return False
    return not (row.get("draft", {}).get("extend") and row.get("proposal") in _NOT_EXTENDED)


def pairs_with(places: Mapping[str, int], name: str, place: int) -> Iterator[Pair]:
    """Yield the pairs of one value with others, each in the options' order."""
    order = list(OPTIONS)
    for other, at in places.items():
        if order.index(other) < order.index(name):
            yield (other, at), (name, place)
        else:
            yield (name, place), (other, at)


def _all_pairs() -> Iterator[Pair]:
    for one, other in combinations(OPTIONS, 2):
        for first, second in product(range(len(OPTIONS[one])), range(len(OPTIONS[other]))):
            if fits({one: first, other: second}):
                yield (one, first), (other, second)
