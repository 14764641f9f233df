"""Figures of the ways of denoising, with intervals over modules. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bench.papers.inference.bootstrap import Estimate, estimate, quotient
from bench.papers.inference.figure import Figure
from bench.spiffy.quality import Parsed
from bench.spiffy.ways import Denoised, Way
from foredraft.repetition import repetition


@dataclass(frozen=True, slots=True)
class Sample:
    """Texts denoised in one way, by the same unmasking without drafts, and by dynamic unmasking;
    how many of the first are still Python.
    """

    module: str
    found: Denoised
    vanilla: Denoised
    dynamic: Denoised
    parsed: Parsed


class Row(NamedTuple):
    """One way at one temperature.

    calls_divided is by how much drafts divide the calls of the same unmasking; speed is tokens per
    second against dynamic unmasking without drafts; drafting is the time of making and pruning
    drafts as a share of the model's, beside_model that of the walk, too; parses is the share of
    texts that are still Python, of those whose prompt is.
    """

    block: int
    way: str
    drafts: int
    priced: bool
    printed: bool
    temperature: float
    texts: int
    identical: float
    tokens_per_call: Figure
    calls_divided: Figure
    speed: Figure
    drafting: Figure
    beside_model: Figure
    calls_within_steps: bool
    repetition: float
    parses: float


def row(way: Way, block: int, temperature: float, samples: Sequence[Sample]) -> Row:
    """Return a way's figures."""

    def per(parts: Callable[[Sample], tuple[float, float]]) -> Estimate:
        return estimate([(s.module, parts(s)) for s in samples], quotient)

    texts = [text for s in samples for text in s.found.texts]
    same = [
        one == two for s in samples for one, two in zip(s.found.texts, s.vanilla.texts, strict=True)
    ]
    return Row(
        block,
        way.name,
        way.drafts,
        way.priced,
        way.printed,
        temperature,
        len(texts),
        sum(same) / len(same),
        Figure.of(per(lambda s: (sum(map(len, s.found.texts)), s.found.calls))),
        Figure.of(per(lambda s: (s.vanilla.calls, s.found.calls))),
        Figure.of(per(lambda s: (math.log(s.dynamic.seconds / s.found.seconds), 1.0)), math.exp),
        Figure.of(per(lambda s: (s.found.draft_s, s.found.model_s))),
        Figure.of(per(lambda s: (s.found.seconds - s.found.model_s, s.found.model_s))),
        all(s.found.calls <= s.found.steps for s in samples),
        sum(map(repetition, texts)) / len(texts),
        sum(s.parsed.still for s in samples) / max(1, sum(s.parsed.texts for s in samples)),
    )


def as_markdown(rows: Sequence[Row]) -> str:
    """Return the rows as a table."""
    head = (
        "| L | unmasking | D* | T | identical | tokens / call | calls divided by | speed | "
        "drafting | beside the model | repetition | parses |"
    )
    lines = [head, "|---|---|---|---|---|---|---|---|---|---|---|---|"]
    for each in rows:
        cells = (
            str(each.block),
            each.way,
            _drafts(each),
            f"{each.temperature:g}",
            f"{each.identical:.0%}",
            each.tokens_per_call.text(),
            each.calls_divided.text(),
            f"{each.speed.text()}x",
            each.drafting.text(3),
            each.beside_model.text(3),
            f"{each.repetition:.0%}",
            f"{each.parses:.0%}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _drafts(row: Row) -> str:
    if row.priced:
        return f"up to {row.drafts}"
    return f"{row.drafts}, as printed" if row.printed else str(row.drafts)
