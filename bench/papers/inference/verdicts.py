"""What the evidence allows to be said of claims, all those of a table together. Pure.

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
    """Whether what is said is seen here."""

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

    Alike is within a margin to both sides (two one-sided tests, Schuirmann 1987).
    """

    up: float
    down: float
    alike: float = 1.0

    @classmethod
    def of(cls, difference: Estimate, margin: float = 0.0) -> Self:
        """Return the sides of a difference."""
        alike = max(difference.chance_at_least(margin), difference.chance_at_most(-margin))
        return cls(difference.chance_at_most(0), difference.chance_at_least(0), alike)

    @classmethod
    def not_below(cls, difference: Estimate, margin: float) -> Self:
        """Return the sides of a difference that may fall short of 0 by up to a margin.

        It is contradicted where it falls short by more.
        """
        return cls(difference.chance_at_most(-margin), difference.chance_at_least(-margin))

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """The evidence on the claim that the figure is above the other."""
        return (
            Evidence(Verdict.HOLDS, self.up),
            Evidence(Verdict.CONTRADICTED, self.down),
            Evidence(Verdict.EQUIVALENT, self.alike),
        )


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
    within = max(Sides.of(each, margin).alike for each in differences)
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


def _least(chances: Sequence[float]) -> float:
    """Return the chance of the least of several, so many being looked at (Bonferroni)."""
    return min(1.0, len(chances) * min(chances))
