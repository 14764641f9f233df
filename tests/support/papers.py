"""Samples of ways of decoding, as an experiment would have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.compare.rows import Run
from bench.papers.experiments.families import Family, Prompt
from bench.papers.ways import Column, Decoded, Sample, Spent

MODULES = 12
PLAIN = tuple(range(8))


def sample(
    seconds: float = 0.5,
    kept: int = 6,
    rounds: int = 2,
    broken: int = 1,
    family: Family = Family.BODIES,
    tokens: tuple[int, ...] = PLAIN,
    module: str = "x",
    accepted: Mapping[int, int] | None = None,
    drafting_s: float = 0.1,
    spent: Sequence[Spent] = (),
    generated: Mapping[int, int] | None = None,
) -> Sample:
    """Return one prompt, decoded plainly in a second."""
    run = Run(tokens, seconds, kept, 8, rounds)
    decoded = Decoded(run, accepted or {}, broken, drafting_s, 0.2, tuple(spent), generated or {})
    return Sample(Prompt(family, f"{module}-00", "text", module), decoded, Decoded(Run(PLAIN, 1.0)))


def column(
    seconds: float = 0.5,
    kept: int = 6,
    broken: int = 1,
    accepted: Mapping[int, int] | None = None,
    drafting_s: float = 0.1,
    spent: Sequence[Spent] = (),
    tokens: tuple[int, ...] = PLAIN,
    generated: Mapping[int, int] | None = None,
) -> Column:
    """Return a prompt of each family in every module; modules differ a little in speed."""
    return [
        sample(
            seconds * (1 + 0.002 * number),
            kept,
            2,
            broken,
            family,
            tokens,
            f"m{number}",
            accepted,
            drafting_s,
            spent,
            generated,
        )
        for number in range(MODULES)
        for family in Family
    ]


FAST, SLOW = column(0.3, kept=9), column(0.8, kept=3)
EVEN = column(0.5, kept=6)
