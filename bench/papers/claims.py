"""What a paper says of its table, and whether the same is seen here. Pure.

Two ways are compared prompt by prompt with a sign test, so a claim on few or uneven prompts comes
out undecided instead of as luck would have it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

from bench.papers.stats import Measure, compare, macro, mat, speedup, values
from bench.papers.theirs import Figure
from bench.papers.ways import Column


class Verdict(StrEnum):
    """Whether what the paper says is seen here."""

    HOLDS = "holds"
    FAILS = "does not hold"
    OPEN = "undecided"


@dataclass(frozen=True, slots=True)
class Claim:
    """One statement of a paper, and both sides' figures for it."""

    text: str
    theirs: str
    ours: str
    verdict: Verdict


_UNITS: dict[Measure, str] = {speedup: "{:.2f}x", mat: "{:.2f}"}


def higher(text: str, theirs: str, first: Column, second: Column, measure: Measure) -> Claim:
    """Return the claim that the first way's measure is above the second's."""
    a, b = values(first, measure), values(second, measure)
    found = compare(a, b)
    unit = _UNITS.get(measure, "{:.2f}")
    ours = (
        f"medians {unit.format(median(a))} and {unit.format(median(b))}; "
        f"higher on {found.higher}, lower on {found.lower} of {len(a)} prompts"
    )
    return Claim(text, theirs, ours, verdict_of(found.is_higher))


def printed(measure: Measure, figures: Mapping[str, Figure]) -> str:
    """Return what a paper prints of some of its ways."""
    unit = _UNITS[measure]
    listed = {n: f.speedup if measure is speedup else f.mat for n, f in figures.items()}
    return ", ".join(f"{n} {'-' if v is None else unit.format(v)}" for n, v in listed.items())


def pays(text: str, theirs: str, column: Column) -> Claim:
    """Return the claim that a way is faster than plain decoding."""
    speeds = values(column, speedup)
    found = compare(speeds, [1.0] * len(speeds))
    ours = (
        f"{macro(column, speedup):.2f}x over the families; faster on {found.higher}, slower on "
        f"{found.lower} of {len(speeds)} prompts"
    )
    return that(text, theirs, ours, found.is_higher)


def beats(first: Column, second: Column, measure: Measure) -> bool | None:
    """Return whether the first way's measure is above the second's, None if it is undecided."""
    return compare(values(first, measure), values(second, measure)).is_higher


def beats_plain(column: Column) -> bool | None:
    """Return whether a way is faster than plain decoding, None if it is undecided."""
    speeds = values(column, speedup)
    return compare(speeds, [1.0] * len(speeds)).is_higher


def that(text: str, theirs: str, ours: str, holds: bool | None) -> Claim:
    """Return a claim on figures that are compared as they are; None is undecided."""
    return Claim(text, theirs, ours, verdict_of(holds))


def verdict_of(holds: bool | None) -> Verdict:
    """Return the verdict's name."""
    return Verdict.OPEN if holds is None else Verdict.HOLDS if holds else Verdict.FAILS


def peak(columns: dict[str, Column], measure: Measure) -> str:
    """Return the name of the column with the highest median."""
    return max(columns, key=lambda name: median(values(columns[name], measure)))


def fastest_inside(text: str, theirs: str, columns: dict[str, Column]) -> Claim:
    """Return the claim that the best setting before the last of a row is faster than the last."""
    last = list(columns)[-1]
    best = peak({name: columns[name] for name in columns if name != last}, speedup)
    claim = higher(text, theirs, columns[best], columns[last], speedup)
    return Claim(text, theirs, f"{best} against {last}: {claim.ours}", claim.verdict)


def grows(text: str, theirs: str, columns: dict[str, Column], measure: Measure) -> Claim:
    """Return the claim that a measure is higher at the last of a row of settings than at the first.

    Every setting's median is listed.
    """
    names = list(columns)
    claim = higher(text, theirs, columns[names[-1]], columns[names[0]], measure)
    unit = _UNITS.get(measure, "{:.2f}")
    steps = ", ".join(
        f"{name}: {unit.format(median(values(columns[name], measure)))}" for name in names
    )
    return Claim(text, theirs, f"{claim.ours} ({steps})", claim.verdict)


def all_of(text: str, theirs: str, ours: str, parts: Iterable[bool | None]) -> Claim:
    """Return a claim that holds where every part is True, and fails where one is False."""
    found = set(parts)
    return that(text, theirs, ours, False if False in found else None if None in found else True)


def tally(claims: Iterable[Claim]) -> str:
    """Return how many claims hold, fail and stay open."""
    verdicts = [claim.verdict for claim in claims]
    return ", ".join(f"{verdict}: {verdicts.count(verdict)}" for verdict in Verdict)
