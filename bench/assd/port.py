"""What decoding asks of an any-subset model: query rows over a content in order space. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from foredraft.layout import Layout
from foredraft.types import SamplingParams
from verifier_service.rules.sampling import Choice, RowSampling, choose

Logits = npt.NDArray[np.float32]


class Query(NamedTuple):
    """A query row: the token at order index `order`, given the first `seen` of the content."""

    order: int
    seen: int


class JointModel(Protocol):
    """A model of every joint p(x_sigma(>=m) | x_sigma(<m)) (Eq. 2) and of its drafts."""

    def logits(self, layout: Layout, content: Sequence[int], queries: Sequence[Query]) -> Logits:
        """Return one row of logits for each query: [queries, vocabulary], in one forward pass.

        content is the prompt and the generated or drafted tokens after it, in order space. A row
        must not depend on the other queries, nor on content beyond what it sees, by a single bit.
        """


def star(start: int, count: int, seen: int) -> list[Query]:
    """Return `count` queries from order `start` on that see the same content (Fig. 1a)."""
    return [Query(start + i, seen) for i in range(count)]


def chain(start: int, count: int) -> list[Query]:
    """Return `count` queries from order `start` on that each see all before them (Fig. 1b)."""
    return [Query(start + i, start + i) for i in range(count)]


def drawn(
    logits: Logits, queries: Sequence[Query], sampling: SamplingParams, choice: Choice = choose
) -> list[int]:
    """Return the token of each row under the shared noise of its order index.

    Raise ValueError where a row cannot be used.
    """
    tokens = choice(logits, [RowSampling(sampling, query.order) for query in queries])
    usable = [token for token in tokens if token is not None]
    if len(usable) < len(tokens):
        raise ValueError("the model's logits are not finite")
    return usable


class Decoded(NamedTuple):
    """A finished text: the generated tokens in order, the model's forward passes, draft rounds, and
    calls of an auxiliary model.
    """

    tokens: tuple[int, ...]
    calls: int
    rounds: int
    auxiliary: int = 0


def sequential(
    model: JointModel,
    layout: Layout,
    prompt: Sequence[int],
    sampling: SamplingParams,
    choice: Choice = choose,
) -> Decoded:
    """Return x_sigma(>=m), decoded one by one with the shared noise of order indices: N - m calls.

    Every choice draws the same tokens. This is the definition that every way of decoding is held
    against.
    """
    text = list(prompt)
    while len(text) < layout.length:
        queries = chain(len(text), 1)
        text += drawn(model.logits(layout, text, queries), queries, sampling, choice)
    generated = tuple(text[len(prompt) :])
    return Decoded(generated, len(generated), len(generated))
