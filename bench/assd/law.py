"""`foredraft bench assd --law`: texts of Algorithm 1 beside those of sequential decoding, untimed.

Perplexity differs from text to text far more than from way to way, so that it takes thousands of
them; many share each forward pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from bench.assd.algorithm_1 import KeyedChance, rejection
from bench.assd.in_step import in_step
from bench.assd.judge import Judge, by_position, entropy
from bench.assd.paged import PagedJoint
from bench.assd.port import Decoded, sequential
from bench.assd.table import Written, alike, contrast
from bench.assd.texts import Masked
from bench.papers.inference.bootstrap import estimate, quotient
from bench.papers.inference.figure import Figure
from foredraft.repetition import repetition
from foredraft.types import SamplingParams
from verifier_service.models.port import TargetModel

_WIDTH = 32
"""Texts that share a forward pass."""
_PART = 256
"""Texts from one line of progress to the next."""

Fill = Callable[[PagedJoint, Masked], Decoded]


class LawRow(NamedTuple):
    """What one way wrote; ratio is its perplexity over sequential decoding's."""

    way: str
    texts: int
    tokens_per_iteration: Figure
    calls_share: Figure
    perplexity: Figure
    ratio: Figure
    entropy: Figure
    repetition: float
    alike: str


def compare(
    model: TargetModel, judge: Judge, texts: Sequence[Masked], k: int, say: Callable[[str], None]
) -> list[LawRow]:
    """Fill the texts by sequential decoding, and by Algorithm 1 with drafts of k tokens, at
    temperature 1.
    """
    ways: dict[str, Fill] = {
        "sequential": lambda joint, text: sequential(
            joint, text.layout, text.given, SamplingParams(1.0, seed=text.seed)
        ),
        f"Algorithm 1, k={k}": lambda joint, text: rejection(
            joint, text.layout, text.given, SamplingParams(1.0), k, KeyedChance(text.seed)
        ),
    }
    rows: list[LawRow] = []
    plain: list[Written] = []
    for name, fill in ways.items():
        decoded: list[Decoded] = []
        for at in range(0, len(texts), _PART):
            programs = [partial(_filled, fill, text) for text in texts[at : at + _PART]]
            decoded += in_step(model, programs, _WIDTH)
            say(f"{name}: {len(decoded)} of {len(texts)} texts")
        pairs = list(zip(texts, decoded, strict=True))
        written = [_written(text, each, judge) for text, each in pairs]
        plain = plain or written
        rows.append(_row(name, pairs, written, plain))
    return rows


def as_markdown(rows: Sequence[LawRow]) -> str:
    """Return the rows as a table."""
    head = (
        "| way | texts | tokens / iteration | calls / token | perplexity | of sequential's "
        "| entropy | repetition | alike |"
    )
    lines = [head, "|---|---|---|---|---|---|---|---|---|"]
    for row in rows:
        cells = (
            row.way,
            str(row.texts),
            row.tokens_per_iteration.text(),
            row.calls_share.text(3),
            row.perplexity.text(1),
            row.ratio.text(3),
            row.entropy.text(3),
            f"{row.repetition:.1%}",
            row.alike,
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _filled(fill: Fill, text: Masked, model: TargetModel) -> Decoded:
    mask = model.info.mask_token_id
    assert mask is not None
    joint = PagedJoint(model, text.layout.length, mask)
    try:
        return fill(joint, text)
    finally:
        joint.close()


def _written(text: Masked, decoded: Decoded, judge: Judge) -> Written:
    whole = by_position(text.layout, [*text.given, *decoded.tokens])
    return Written(text.module, judge.nats(whole), entropy(whole))


def _row(
    name: str,
    pairs: Sequence[tuple[Masked, Decoded]],
    written: Sequence[Written],
    plain: Sequence[Written],
) -> LawRow:
    def per(parts: Callable[[Decoded], tuple[float, float]]) -> Figure:
        return Figure.of(estimate([(text.module, parts(each)) for text, each in pairs], quotient))

    nats = estimate([(each.module, (each.nats, 1.0)) for each in written], quotient)
    entropies = estimate([(each.module, (each.entropy, 1.0)) for each in written], quotient)
    return LawRow(
        name,
        len(pairs),
        per(lambda each: (len(each.tokens), each.rounds)),
        per(lambda each: (each.calls, len(each.tokens))),
        Figure.of(nats, math.exp),
        Figure.of(contrast(written, plain, lambda each: each.nats), math.exp),
        Figure.of(entropies),
        sum(repetition(each.tokens) for _, each in pairs) / len(pairs),
        "-" if written is plain else alike(written, plain),
    )
