"""Figures of a way's samples, and whether one way beats another. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from bench.papers.experiments.families import Family
from bench.papers.ways import Column, Promise, Sample
from foredraft.repetition import repetition

Measure = Callable[[Sample], float]

# What a chance of being wrong is allowed when one way is said to beat another.
_RISK = 0.05


def speedup(sample: Sample) -> float:
    """Return tokens/s over those of the plain run next to it."""
    return sample.decoded.run.speed / sample.plain.run.speed


def mat(sample: Sample) -> float:
    """Return accepted draft tokens per drafted round, bonus and correction excluded."""
    run = sample.decoded.run
    return run.kept / run.draft_rounds if run.draft_rounds else 0.0


def alpha(sample: Sample) -> float:
    """Return the share of tested draft tokens of a path that was accepted (SpecDiff's alpha).

    Tokens behind the first refused one were not tested.
    """
    tested = sample.decoded.run.kept + sample.decoded.broken
    return sample.decoded.run.kept / tested if tested else 0.0


def values(column: Column, measure: Measure) -> list[float]:
    """Return a measure of each prompt."""
    return [measure(sample) for sample in column]


def of_family(column: Column, family: Family) -> Column:
    """Return a family's samples."""
    return [sample for sample in column if sample.prompt.family is family]


def families(column: Column) -> list[Family]:
    """Return the families that have samples, in their usual order."""
    return [family for family in Family if of_family(column, family)]


def in_family(column: Column, family: Family, measure: Measure) -> float | None:
    """Return a family's median, None where it has no samples."""
    found = values(of_family(column, family), measure)
    return median(found) if found else None


def macro(column: Column, measure: Measure) -> float:
    """Return the mean over families of their median: the papers' macro mean."""
    groups = [of_family(column, family) for family in families(column)]
    return fmean(median(values(group, measure)) for group in groups)


def pooled_mat(column: Column) -> float:
    """Return accepted tokens per drafted round over all rounds, as the papers average MAT."""
    rounds = sum(sample.decoded.run.draft_rounds for sample in column)
    return sum(sample.decoded.run.kept for sample in column) / rounds if rounds else 0.0


def pooled_alpha(column: Column) -> float:
    """Return alpha over all tested tokens."""
    kept = sum(sample.decoded.run.kept for sample in column)
    tested = kept + sum(sample.decoded.broken for sample in column)
    return kept / tested if tested else 0.0


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


def rate(counts: Mapping[int, int], before: range) -> float | None:
    """Return accepted over tried of the draft tokens that have so many before them."""
    tried = sum(rounds for kept, rounds in counts.items() for i in before if kept >= i)
    held = sum(rounds for kept, rounds in counts.items() for i in before if kept > i)
    return held / tried if tried else None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Prompts on which the first way was higher, lower, and a sign test between them.

    chance is the two-sided probability of so uneven a split among ways that are alike.
    """

    higher: int
    lower: int
    chance: float

    @property
    def is_higher(self) -> bool | None:
        """True or False where the split is no accident, None where it may be one."""
        return None if self.chance > _RISK else self.higher > self.lower


def compare(first: Sequence[float], second: Sequence[float]) -> Comparison:
    """Compare two ways on the same prompts; ties count for neither."""
    higher = sum(a > b for a, b in zip(first, second, strict=True))
    lower = sum(a < b for a, b in zip(first, second, strict=True))
    n, few = higher + lower, min(higher, lower)
    chance = min(1.0, 2 * sum(math.comb(n, i) for i in range(few + 1)) / 2**n)
    return Comparison(higher, lower, chance)
