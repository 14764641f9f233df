"""Figures of the ways, with intervals over modules. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from bench.assd.ways import PRINTED, Filled, Way
from bench.papers.inference.bootstrap import Estimate, difference, estimate, quotient
from bench.papers.inference.figure import Figure
from bench.papers.inference.verdicts import Evidence, Sides, Verdict, verdicts
from foredraft.repetition import repetition

MARGIN = 0.05
"""Perplexity and entropy count as alike within this share of them."""


@dataclass(frozen=True, slots=True)
class Written:
    """A filled text of a module: the nats and the entropy of its tokens (Eq. 21, 22)."""

    module: str
    nats: float
    entropy: float


@dataclass(frozen=True, slots=True)
class Sample:
    """A text filled in one way, and by the way beside it."""

    written: Written
    found: Filled
    beside: Filled


class Row(NamedTuple):
    """One way at one temperature. Shares are of sequential decoding's calls."""

    way: str
    temperature: float
    k: int
    texts: int
    identical: float | None
    tokens_per_iteration: Figure
    calls_share: Figure
    auxiliary_share: float
    speedup: Figure
    perplexity: Figure
    entropy: Figure
    repetition: float
    alike: str


def row(way: Way, temperature: float, samples: Sequence[Sample], plain: Sequence[Sample]) -> Row:
    """Return a way's figures; plain are the samples of the printed sequential way."""

    def per(parts: Callable[[Sample], tuple[float, float]]) -> Estimate:
        return estimate([(s.written.module, parts(s)) for s in samples], quotient)

    tokens = [s.found.decoded.tokens for s in samples]
    same = [s.found.decoded.tokens == s.beside.decoded.tokens for s in samples]
    auxiliary = sum(s.found.decoded.auxiliary for s in samples)
    speedup = per(lambda s: (math.log(s.beside.seconds / s.found.seconds), 1.0))
    return Row(
        way.name,
        temperature,
        way.k,
        len(samples),
        sum(same) / len(same) if way.exact or temperature == 0 else None,
        Figure.of(per(lambda s: (len(s.found.decoded.tokens), s.found.decoded.rounds))),
        Figure.of(per(lambda s: (s.found.decoded.calls, len(s.found.decoded.tokens)))),
        auxiliary / sum(map(len, tokens)),
        Figure.of(speedup, math.exp),
        Figure.of(per(lambda s: (s.written.nats, 1.0)), math.exp),
        Figure.of(per(lambda s: (s.written.entropy, 1.0))),
        sum(map(repetition, tokens)) / len(tokens),
        "-"
        if way.name == PRINTED
        else alike([s.written for s in samples], [s.written for s in plain]),
    )


def alike(samples: Sequence[Written], plain: Sequence[Written]) -> str:
    """Return whether perplexity and entropy are those of sequential decoding (two one-sided tests).

    Verdicts are on both, in this order.
    """
    level = sum(s.entropy for s in plain) / len(plain)
    evidence = (
        _sides(samples, plain, lambda s: s.nats, math.log1p(MARGIN)),
        _sides(samples, plain, lambda s: s.entropy, MARGIN * level),
    )
    return ", ".join(verdicts(evidence))


def contrast(
    samples: Sequence[Written], plain: Sequence[Written], figure: Callable[[Written], float]
) -> Estimate:
    """Return a way's mean figure less the plain one's."""
    rows = [(s.module, (figure(s), 1.0, 0.0, 0.0)) for s in samples]
    rows += [(s.module, (0.0, 0.0, figure(s), 1.0)) for s in plain]
    return estimate(rows, difference)


def _sides(
    samples: Sequence[Written],
    plain: Sequence[Written],
    figure: Callable[[Written], float],
    margin: float,
) -> tuple[Evidence, ...]:
    """Return the evidence that a way's mean figure is the plain one's within a margin."""
    sides = Sides.of(contrast(samples, plain, figure), margin)
    assert sides.alike is not None
    apart = min(1.0, 2 * min(sides.up, sides.down))
    return (
        Evidence(Verdict.EQUIVALENT, sides.alike),
        Evidence(Verdict.CONTRADICTED, apart),
    )


def summary(rows: Sequence[Row], k: int, tree: int) -> dict[str, Any]:
    """Return the figures that are asked for by name: the paper's at drafts of k tokens, ours at
    trees of at most `tree`.
    """

    def found(way: str, temperature: float, k: int) -> Row:
        return next(r for r in rows if (r.way, r.temperature, r.k) == (way, temperature, k))

    printed = found("Algorithm 1, self", 1.0, k)
    exact = [r.identical for r in rows if r.identical is not None]
    return {
        "identical": min(exact),
        "tokens_per_iteration": printed.tokens_per_iteration,
        "calls_share": printed.calls_share,
        "speedup_printed": printed.speedup,
        "speedup_t0": found("served, self", 0.0, tree).speedup,
        "speedup_t1": found("served, self", 1.0, tree).speedup,
    }


def as_markdown(rows: Sequence[Row]) -> str:
    """Return the rows as a table."""
    head = (
        "| way | T | k | identical | tokens / iteration | calls / token | auxiliary calls / token "
        "| speed | perplexity | entropy | repetition | alike |"
    )
    lines = [head, "|---|---|---|---|---|---|---|---|---|---|---|---|"]
    for each in rows:
        same = "law" if each.identical is None else f"{each.identical:.0%}"
        cells = (
            each.way,
            f"{each.temperature:g}",
            str(each.k or "-"),
            same,
            each.tokens_per_iteration.text(),
            each.calls_share.text(3),
            f"{each.auxiliary_share:.2f}",
            each.speedup.text() + "x",
            each.perplexity.text(1),
            each.entropy.text(),
            f"{each.repetition:.0%}",
            each.alike,
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
