"""DiffuSpec Fig. 2c: the signals that ADL follows, L_gen and L_acc, against the draft length."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

from bench.papers import plots
from bench.papers.claims import Claim, grows, levels_off
from bench.papers.experiment import Experiment
from bench.papers.report import Section, Table
from bench.papers.stats import Measure, accepted
from bench.papers.ways import Column

_THEIRS = "drawn in Fig. 2c"


def _weighted(counts: Mapping[int, int]) -> tuple[float, float]:
    return float(sum(n * count for n, count in counts.items())), float(sum(counts.values()))


L_GEN = Measure(lambda sample: _weighted(sample.decoded.generated))
"""Mean tokens of a draft before its end of text (Eq. 8)."""


def figure_2(experiment: Experiment, by_length: Mapping[str, Column]) -> Section:
    """Return both signals of Table 5's runs with fixed lengths, by length ("k=4")."""
    rows = []
    drawn: dict[str, dict[int, float | None]] = {"L_gen": {}, "L_acc": {}, "y = x": {}}
    for name, column in by_length.items():
        k = int(name.removeprefix("k="))
        generated, kept = _generated(column), accepted(column)
        means = _mean(generated), _mean(kept)
        drawn["L_gen"][k], drawn["L_acc"][k], drawn["y = x"][k] = *means, float(k)
        rows.append(
            (
                name,
                *(
                    f"{mean:.2f} ± {_deviation(counts):.2f}"
                    for mean, counts in zip(means, (generated, kept), strict=True)
                ),
                f"{sum(n for length, n in generated.items() if length < k)} of {generated.total()}",
            )
        )
    path = experiment.plot("diffuspec_figure2")
    plots.lines(path, drawn, ("draft length k", "tokens"))
    return Section(
        "DiffuSpec Fig. 2c: L_gen and L_acc against the draft length",
        "Mean and standard deviation over drafts and rounds of the runs of Table 5. A draft's "
        "L_gen is below k only where it contains the end of text: without that, ADL has one signal "
        "instead of two.",
        (Table(("length", "L_gen", "L_acc", "drafts with an end of text"), tuple(rows)),),
        _claims_2(by_length),
        (path.name,),
        {name: dict(_generated(column)) for name, column in by_length.items()},
    )


def _claims_2(by_length: Mapping[str, Column]) -> tuple[Claim, ...]:
    *_, before, _last = by_length
    return (
        grows("L_gen grows with k", _THEIRS, by_length, L_GEN),
        levels_off("L_gen grows with k, then saturates", _THEIRS, by_length, [before], L_GEN),
    )


def _generated(column: Column) -> Counter[int]:
    counts: Counter[int] = Counter()
    for sample in column:
        counts.update(sample.decoded.generated)
    return counts


def _mean(counts: Mapping[int, int]) -> float:
    total, number = _weighted(counts)
    return total / number if number else 0.0


def _deviation(counts: Mapping[int, int]) -> float:
    mean, number = _mean(counts), sum(counts.values())
    spread = sum(count * (n - mean) ** 2 for n, count in counts.items())
    return math.sqrt(spread / number) if number else 0.0
