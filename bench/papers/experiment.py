"""What every table is measured with, and the tables that several of them share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from bench.papers.experiments.families import Prompt
from bench.papers.plan import Plan
from bench.papers.report import Table, number, percent, times
from bench.papers.stats import (
    MAT,
    families,
    in_family,
    macro,
    repeated,
    same_tokens,
    speedup,
    values,
)
from bench.papers.theirs import Figure
from bench.papers.ways import Column, Promise, Way

if TYPE_CHECKING:
    from bench.compare.peers import Transformers
    from bench.papers.pair import Pair

_NO_FIGURE = Figure()


@dataclass(frozen=True, slots=True)
class Experiment:
    """The pair and its peers, the prompts, how much of them to decode, and where plots go.

    many are the prompts of the table that compares draft lengths.
    """

    pair: Pair
    peers: Transformers
    prompts: Sequence[Prompt]
    many: Sequence[Prompt]
    plan: Plan
    folder: Path

    def plot(self, name: str) -> Path:
        """Return the file of a plot."""
        return self.folder / f"{self.plan.report}_{name}.png"


def family_table(
    columns: Mapping[str, Column],
    ways: Sequence[Way],
    temperature: float,
    theirs: Mapping[str, Figure],
    caption: str = "",
) -> Table:
    """Return a row for each way: its speedup by family, what its drafts came to, and theirs."""
    groups = families(next(iter(columns.values())))
    head = (
        "way here",
        *groups,
        "mean speedup",
        "tokens/s",
        "MAT",
        "repetition",
        "same tokens",
        "their speedup",
        "their MAT",
    )
    rows = []
    for way in ways:
        column = columns[way.name]
        figure = theirs.get(way.name, _NO_FIGURE)
        rows.append(
            (
                way.name,
                *(times(in_family(column, group, speedup)) for group in groups),
                times(macro(column, speedup)),
                f"{median(sample.decoded.run.speed for sample in column):.0f}",
                number(MAT.of(column) if drafted_per_round(column) else None),
                percent(repeated(column)),
                same_tokens(column, way.promise, temperature),
                times(figure.speedup),
                number(figure.mat),
            )
        )
    return Table(head, tuple(rows), caption)


def sweep_table(
    setting: str, columns: Mapping[str, Column], theirs: Mapping[str, Figure] | None = None
) -> Table:
    """Return a row for each setting of one knob at temperature 0, theirs beside it if given."""
    head = ("speedup", "MAT", "repetition", "drafted per round", "same tokens")
    rows = []
    for name, column in columns.items():
        figure = (theirs or {}).get(name, _NO_FIGURE)
        ours = (
            name,
            times(median(values(column, speedup))),
            number(MAT.of(column)),
            percent(repeated(column)),
            number(drafted_per_round(column)),
            same_tokens(column, Promise.TOKENS, 0.0),
        )
        rows.append((*ours, times(figure.speedup), number(figure.mat)) if theirs else ours)
    beside = ("their speedup", "their MAT") if theirs else ()
    return Table((setting, *head, *beside), tuple(rows))


def drafted_per_round(column: Column) -> float:
    """Return the mean number of draft tokens under verification in a drafted round."""
    rounds = sum(sample.decoded.run.draft_rounds for sample in column)
    return sum(sample.decoded.run.drafted for sample in column) / rounds if rounds else 0.0


def raw(columns: Mapping[str, Column]) -> dict[str, Any]:
    """Return each way's figures by prompt, as JSON values."""
    return {
        name: [
            {
                "prompt": sample.prompt.source,
                "family": sample.prompt.family,
                "tokens": len(sample.decoded.run.tokens),
                "seconds": round(sample.decoded.run.seconds, 5),
                "plain_seconds": round(sample.plain.run.seconds, 5),
                "plain_tokens": len(sample.plain.run.tokens),
                "kept": sample.decoded.run.kept,
                "drafted": sample.decoded.run.drafted,
                "rounds": sample.decoded.run.draft_rounds,
                "same": sample.decoded.run.tokens == sample.plain.run.tokens,
            }
            for sample in column
        ]
        for name, column in columns.items()
    }


def their_table(setting: str, figures: Mapping[str, Figure]) -> Table:
    """Return a paper's own row of settings, as printed."""
    rows = tuple((name, times(f.speedup), number(f.mat)) for name, f in figures.items())
    return Table((f"their {setting}", "speedup", "MAT"), rows, "Theirs, as printed:")
