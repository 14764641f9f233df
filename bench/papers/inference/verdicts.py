"""The verdicts that the evidence allows on claims, all those of a table together. Pure.

A claim has evidence for each verdict that it could come to, so it can turn out either way. Holm's
procedure (Scand. J. Statist. 1979) keeps the chance of one wrong verdict in a table under _RISK.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Self

from bench.papers.inference.bootstrap import Estimate

_RISK = 0.05


class Verdict(StrEnum):
    """Whether a claim is seen here."""

    HOLDS = "holds"
    CONTRADICTED = "contradicted"
    EQUIVALENT = "equivalent"
    OPEN = "cannot tell"


class Evidence(NamedTuple):
    """A verdict, and the chance of such data were it wrong."""

    verdict: Verdict
    chance: float


@dataclass(frozen=True, slots=True)
class Sides:
    """The chances of such data were a figure not above, not below, or not alike another.

    Alike is within a margin to both sides (two one-sided tests, Schuirmann 1987), None where that
    is not asked.
    """

    up: float
    down: float
    alike: float | None = None

    @classmethod
    def of(cls, difference: Estimate, margin: float) -> Self:
        """Return the sides of a difference, which is alike within a margin."""
        sides = cls.above(difference)
        return cls(sides.up, sides.down, _within(difference, margin))

    @classmethod
    def above(cls, figure: Estimate, bound: float = 0.0) -> Self:
        """Return the sides of a figure against a bound."""
        return cls(figure.chance_at_most(bound), figure.chance_at_least(bound))

    @property
    def swapped(self) -> Self:
        """The sides of the claim that the figure is below."""
        return type(self)(self.down, self.up, self.alike)

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """The evidence on the claim that the figure is above the other."""
        found = (Evidence(Verdict.HOLDS, self.up), Evidence(Verdict.CONTRADICTED, self.down))
        if self.alike is None:
            return found
        return (*found, Evidence(Verdict.EQUIVALENT, self.alike))


def every(sides: Iterable[Sides]) -> Sides:
    """Return the sides of the claim that all are above."""
    found = list(sides)
    return Sides(max(s.up for s in found), _least([s.down for s in found]))


def some(sides: Iterable[Sides]) -> Sides:
    """Return the sides of the claim that one of them is above, whichever."""
    found = list(sides)
    return Sides(_least([s.up for s in found]), max(s.down for s in found))


def alike(differences: Sequence[Estimate], margin: float) -> tuple[Evidence, ...]:
    """Return the evidence on the claim that no difference is beyond a margin, to either side."""
    within = max(_within(each, margin) for each in differences)
    above = [each.chance_at_most(margin) for each in differences]
    below = [each.chance_at_least(-margin) for each in differences]
    return Evidence(Verdict.HOLDS, within), Evidence(Verdict.CONTRADICTED, _least(above + below))


def counted(holds: bool) -> tuple[Evidence, ...]:
    """Return the evidence on what is no sample: one case that differs contradicts it."""
    return (Evidence(Verdict.HOLDS if holds else Verdict.CONTRADICTED, 0.0),)


def verdicts(claims: Sequence[Sequence[Evidence]]) -> list[Verdict]:
    """Return each claim's verdict: the first that Holm's procedure lets stand."""
    ordered = sorted(each.chance for evidence in claims for each in evidence)
    bound = -1.0
    for index, chance in enumerate(ordered):
        if chance > _RISK / (len(ordered) - index):
            break
        bound = chance
    return [
        next((each.verdict for each in evidence if each.chance <= bound), Verdict.OPEN)
        for evidence in claims
    ]


def _within(difference: Estimate, margin: float) -> float:
    """Return the chance of such data were a difference beyond a margin, to either side."""
    return max(difference.chance_at_least(margin), difference.chance_at_most(-margin))


def _least(chances: Sequence[float]) -> float:
    """Return the chance of the least of several, so many being looked at (Bonferroni)."""
    return min(1.0, len(chances) * min(chances))
