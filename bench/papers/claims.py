"""A paper's claims on its table, and what is seen here of them. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from bench.papers.inference.bootstrap import LEAST_UNITS, Estimate
from bench.papers.inference.verdicts import (
    Evidence,
    Sides,
    Verdict,
    alike,
    counted,
    every,
    some,
    verdicts,
)
from bench.papers.stats import SPEED, Measure
from bench.papers.theirs import Figure
from bench.papers.ways import Column

# Two ways whose figures differ by less are equivalent.
MARGIN = 0.05


@dataclass(frozen=True, slots=True)
class Claim:
    """One statement of a paper, both sides' figures for it, and the evidence."""

    text: str
    theirs: str
    ours: str
    evidence: tuple[Evidence, ...]


def printed(measure: Measure, figures: Mapping[str, Figure]) -> str:
    """Return what a paper prints of some of its ways."""
    listed = {n: f.speedup if measure is SPEED else f.mat for n, f in figures.items()}
    return ", ".join(
        f"{n} {'-' if v is None else measure.unit.format(v)}" for n, v in listed.items()
    )


def higher(text: str, theirs: str, first: Column, second: Column, measure: Measure) -> Claim:
    """Return the claim that the first way's figure is above the second's."""
    ours = f"{measure.text(first)} and {measure.text(second)}: {apart(measure, first, second)}"
    return Claim(text, theirs, ours, sides(measure, first, second).evidence)


def within_each(
    text: str,
    theirs: str,
    pairs: Mapping[str, tuple[Column, Column]],
    measure: Measure,
    share: float = MARGIN,
) -> Claim:
    """Return the claim that no pair's first figure is below its second by more than a share.

    Pairs of too few modules are left out.
    """
    ours = ", ".join(
        f"{name}: {measure.text(first)} and {measure.text(second)}, {apart(measure, first, second)}"
        for name, (first, second) in pairs.items()
    )
    compared = [(measure.compare(*pair), measure.margin(pair[1], share)) for pair in pairs.values()]
    found = [
        Sides.above(difference, -margin)
        for difference, margin in compared
        if difference.units >= LEAST_UNITS
    ]
    return Claim(text, theirs, ours, every(found).evidence if found else ())


def highest(
    text: str, theirs: str, first: Column, others: Mapping[str, Column], measure: Measure
) -> Claim:
    """Return the claim that the first way's figure is above that of every other."""
    found = every(sides(measure, first, each) for each in others.values())
    listed = ", ".join(
        f"{name} {measure.text(each)}, {apart(measure, first, each)}"
        for name, each in others.items()
    )
    return Claim(text, theirs, f"{measure.text(first)} against {listed}", found.evidence)


def peaks_inside(text: str, theirs: str, columns: Mapping[str, Column], measure: Measure) -> Claim:
    """Return the claim that a setting before the last of a row has a higher figure than the last.

    Whichever it is: none is chosen for its figure.
    """
    *names, last = columns
    found = some(sides(measure, columns[name], columns[last]) for name in names)
    return Claim(text, theirs, row(measure, columns), found.evidence)


def grows(text: str, theirs: str, columns: Mapping[str, Column], measure: Measure) -> Claim:
    """Return the claim that a figure is higher at the last setting of a row than at the first."""
    first, *_, last = columns.values()
    ours = f"{row(measure, columns)}; last against first: {apart(measure, last, first)}"
    return Claim(text, theirs, ours, sides(measure, last, first).evidence)


def grows_each(
    text: str, theirs: str, sweeps: Sequence[Mapping[str, Column]], measure: Measure
) -> Claim:
    """Return the claim that in each of several rows of settings a figure grows to the last."""
    ours = "; ".join(row(measure, columns) for columns in sweeps)
    rows = [list(columns.values()) for columns in sweeps]
    found = every(sides(measure, each[-1], each[0]) for each in rows)
    return Claim(text, theirs, ours, found.evidence)


def peaks_below(
    text: str, theirs: str, columns: Mapping[int, Column], most: int, measure: Measure
) -> Claim:
    """Return the claim that a setting of at most `most` has a higher figure than all above."""
    ours = row(measure, {str(setting): column for setting, column in columns.items()})
    small = [column for setting, column in columns.items() if setting <= most]
    large = [column for setting, column in columns.items() if setting > most]
    found = some(every(sides(measure, first, each) for each in large) for first in small)
    return Claim(text, theirs, ours, found.evidence)


def even(
    text: str, theirs: str, columns: Mapping[str, Column], measure: Measure, share: float
) -> Claim:
    """Return the claim that no two settings' figures differ by more than a share."""
    found = [measure.compare(first, second) for first, second in combinations(columns.values(), 2)]
    margin = measure.margin(next(iter(columns.values())), share)
    evidence = alike(found, margin) if found else ()
    return Claim(text, theirs, row(measure, columns), evidence)


def levels_off(
    text: str,
    theirs: str,
    columns: Mapping[str, Column],
    near: Sequence[str],
    measure: Measure,
) -> Claim:
    """Return the claim that a figure rises from the first setting to a near one, and no further.

    It is contradicted where it falls up to there, or the last setting is above all near ones.
    """
    names = list(columns)
    first, last = columns[names[0]], columns[names[-1]]
    rises = [sides(measure, columns[name], first) for name in near if name != names[0]]
    ends = [
        Sides.above(measure.compare(columns[name], last), -measure.margin(columns[name], MARGIN))
        for name in near
        if name != names[-1]
    ]
    # Where the paper's setting is the first or the last one tried, one side of it is not known.
    evidence = every([some(rises), some(ends)]).evidence if rises and ends else ()
    return Claim(text, theirs, row(measure, columns), evidence)


def pays(text: str, theirs: str, column: Column) -> Claim:
    """Return the claim that a way is faster than plain decoding."""
    found = SPEED.estimate(column)
    ours = f"{SPEED.text(column)} {span(found, logarithmic=True)}"
    return Claim(text, theirs, ours, Sides.of(found, math.log1p(MARGIN)).evidence)


def pays_everywhere(text: str, theirs: str, columns: Mapping[str, Column]) -> Claim:
    """Return the claim that each way is faster than plain decoding.

    Those of too few modules are left out.
    """
    found = {name: SPEED.estimate(column) for name, column in columns.items()}
    ours = ", ".join(
        f"{name} {SPEED.text(columns[name])} {span(each, logarithmic=True)}"
        for name, each in found.items()
    )
    enough = [Sides.above(each) for each in found.values() if each.units >= LEAST_UNITS]
    return Claim(text, theirs, ours, every(enough).evidence if enough else ())


def above(text: str, theirs: str, ours: str, figure: Estimate, bound: float = 0.0) -> Claim:
    """Return the claim that a figure is above a bound."""
    return Claim(text, theirs, f"{ours} {span(figure)}", Sides.above(figure, bound).evidence)


def below(text: str, theirs: str, ours: str, figure: Estimate, bound: float = 0.0) -> Claim:
    """Return the claim that a figure is below a bound."""
    found = Sides.above(figure, bound).swapped
    return Claim(text, theirs, f"{ours} {span(figure)}", found.evidence)


def every_above(text: str, theirs: str, ours: str, figures: Sequence[Estimate]) -> Claim:
    """Return the claim that each figure is above 0."""
    return Claim(text, theirs, ours, every(map(Sides.above, figures)).evidence)


def alike_each(text: str, theirs: str, ours: str, logs: Sequence[Estimate]) -> Claim:
    """Return the claim that no logarithm of a ratio is further from 0 than MARGIN allows."""
    return Claim(text, theirs, ours, alike(logs, math.log1p(MARGIN)))


def exactly(text: str, theirs: str, ours: str, holds: bool) -> Claim:
    """Return a claim on every case there is: one that differs contradicts it."""
    return Claim(text, theirs, ours, counted(holds))


def sides(measure: Measure, first: Column, second: Column) -> Sides:
    """Return the sides of the first way's figure against the second's."""
    return Sides.of(measure.compare(first, second), measure.margin(second, MARGIN))


def apart(measure: Measure, first: Column, second: Column) -> str:
    """Return how far the first way's figure is from the second's, with its interval, as text."""
    found = measure.compare(first, second)
    value = f"{math.exp(found.value):.2f} times" if measure.logarithmic else f"{found.value:+.2f}"
    return f"{value} {span(found, measure.logarithmic)}"


def span(found: Estimate, logarithmic: bool = False) -> str:
    """Return an interval as text, that of a logarithm as one of ratios."""
    low, high = found.interval
    if math.isinf(low):
        return f"(too few modules: {found.units})"
    if logarithmic:
        low, high = math.exp(low), math.exp(high)
    return f"({low:.3g} to {high:.3g})"


def row(measure: Measure, columns: Mapping[str, Column]) -> str:
    """Return every setting's figure as text."""
    return ", ".join(f"{name}: {measure.text(column)}" for name, column in columns.items())


def verdicts_of(claims: Sequence[Claim]) -> list[Verdict]:
    """Return the verdict of each claim of a table."""
    return verdicts([claim.evidence for claim in claims])


def tally(tables: Iterable[Sequence[Claim]]) -> str:
    """Return how many claims of some tables come to each verdict."""
    found = [verdict for claims in tables for verdict in verdicts_of(claims)]
    return ", ".join(f"{verdict}: {found.count(verdict)}" for verdict in Verdict)
