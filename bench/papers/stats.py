"""Figures of a way's samples, and two ways compared. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import fmean, median

from bench.papers.experiments.families import Family
from bench.papers.inference.bootstrap import Estimate, difference, estimate, quotient
from bench.papers.ways import Column, Promise, Sample
from foredraft.repetition import repetition

Figure = Callable[[Sample], float]


def speedup(sample: Sample) -> float:
    """Return tokens/s over those of the plain run next to it."""
    return sample.decoded.run.speed / sample.plain.run.speed


def values(column: Column, figure: Figure) -> list[float]:
    """Return a figure of each prompt."""
    return [figure(sample) for sample in column]


def of_family(column: Column, family: Family) -> Column:
    """Return a family's samples."""
    return [sample for sample in column if sample.prompt.family is family]


def families(column: Column) -> list[Family]:
    """Return the families that have samples, in their usual order."""
    return [family for family in Family if of_family(column, family)]


def in_family(column: Column, family: Family, figure: Figure) -> float | None:
    """Return a family's median, None where it has no samples."""
    found = values(of_family(column, family), figure)
    return median(found) if found else None


def macro(column: Column, figure: Figure) -> float:
    """Return the mean over families of their median: the papers' macro mean."""
    groups = [of_family(column, family) for family in families(column)]
    return fmean(median(values(group, figure)) for group in groups)


@dataclass(frozen=True, slots=True)
class Measure:
    """A figure of a way: the quotient of two sums over its prompts, as the papers average.

    parts gives a prompt's summands; unit is how the figure is written. A logarithmic measure sums
    logarithms: its figure is a geometric mean, and two ways differ by a ratio.
    """

    parts: Callable[[Sample], tuple[float, float]]
    unit: str = "{:.2f}"
    logarithmic: bool = False

    def of(self, column: Column) -> float:
        """Return the figure of a way."""
        found = self.estimate(column).value
        return math.exp(found) if self.logarithmic else found

    def text(self, column: Column) -> str:
        """Return the figure of a way as text."""
        return self.unit.format(self.of(column))

    def estimate(self, column: Column) -> Estimate:
        """Return the quotient, of logarithms where it is logarithmic, and its spread."""
        return estimate([(s.prompt.module, self.parts(s)) for s in column], quotient)

    def compare(self, first: Column, second: Column) -> Estimate:
        """Return how far the first way's figure is above the second's, and its spread."""
        rows = [(s.prompt.module, (*self.parts(s), 0.0, 0.0)) for s in first]
        rows += [(s.prompt.module, (0.0, 0.0, *self.parts(s))) for s in second]
        return estimate(rows, difference)

    def margin(self, column: Column, share: float) -> float:
        """Return what a share of a way's figure comes to, to be compared with differences."""
        return math.log1p(share) if self.logarithmic else share * abs(self.of(column))


SPEED = Measure(lambda sample: (math.log(speedup(sample)), 1.0), "{:.2f}x", logarithmic=True)
MAT = Measure(lambda sample: (sample.decoded.run.kept, sample.decoded.run.draft_rounds))
ALPHA = Measure(
    lambda sample: (sample.decoded.run.kept, sample.decoded.run.kept + sample.decoded.broken)
)


def repeated(column: Column) -> float:
    """Return the mean repetition rate of the texts, 0 to 1: it flatters every acceptance figure."""
    return fmean(repetition(sample.decoded.run.tokens) for sample in column)


def same_tokens(column: Column, promise: Promise, temperature: float) -> str:
    """Return the share of texts equal to plain decoding's, or what else the way promises.

    At temperature 0 every rule must keep the argmax, so there the share covers all.
    """
    if promise is not Promise.TOKENS and temperature > 0:
        return promise.value
    same = [sample.decoded.run.tokens == sample.plain.run.tokens for sample in column]
    return f"{fmean(same):.0%}"


def accepted(column: Column) -> Counter[int]:
    """Return how many drafted rounds kept each number of tokens."""
    counts: Counter[int] = Counter()
    for sample in column:
        counts.update(sample.decoded.accepted)
    return counts


def at_least(counts: Mapping[int, int], length: int) -> float:
    """Return the share of rounds that kept `length` tokens or more."""
    total = sum(counts.values())
    return sum(n for kept, n in counts.items() if kept >= length) / total if total else 0.0


def survival(counts: Mapping[int, int], block: int, least: int = 1) -> list[float | None]:
    """Return for positions 1..block the share accepted of the rounds that accepted all before.

    None where fewer than `least` rounds came so far.
    """
    reached = [sum(n for kept, n in counts.items() if kept >= i) for i in range(block + 1)]
    return [
        reached[i] / reached[i - 1] if reached[i - 1] >= least else None
        for i in range(1, block + 1)
    ]
