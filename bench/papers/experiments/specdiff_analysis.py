"""SpecDiff App. A, tokens a round as a function of alpha, and App. B, accepted lengths by task."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bench.papers.claims import Claim, alike_each
from bench.papers.inference.bootstrap import Estimate, Floats, estimate, quotient
from bench.papers.report import Section, Table, number, percent
from bench.papers.stats import ALPHA, MAT, accepted, at_least, families, of_family
from bench.papers.ways import Column

_LENGTHS = (1, 4, 8, 12)


def expected_tokens(alpha: Floats, gamma: int) -> Floats:
    """Return the tokens a round brings, the bonus included (SpecDiff Eq. 2).

    Each token is taken to be accepted with probability alpha, whatever stands before it.
    """
    found: Floats = (1 - alpha ** (gamma + 1)) / np.maximum(1 - alpha, 1e-12)
    return found


def analysis(columns: Mapping[int, Column]) -> Section:
    """Return Eq. 2 against what was measured, of runs in one denoising step by gamma."""
    ratios = {gamma: _against(column, gamma) for gamma, column in columns.items()}
    rows = tuple(
        (
            str(gamma),
            ALPHA.text(column),
            number(float(expected_tokens(np.array(ALPHA.of(column)), gamma))),
            number(MAT.of(column) + 1),
        )
        for gamma, column in columns.items()
    )
    return Section(
        "SpecDiff App. A: tokens a round by Eq. 2",
        "From the runs of Fig. 2 with T = 1. Eq. 2 takes every token to be accepted with the same "
        "probability alpha, whatever stands before it.",
        (Table(("gamma", "alpha", "tokens by Eq. 2", "tokens a round here"), rows),),
        (_claim(ratios),),
    )


def _claim(ratios: Mapping[int, Estimate]) -> Claim:
    return alike_each(
        "a round brings the tokens that Eq. 2 has for its alpha (within 5 %)",
        "taken as given",
        ", ".join(
            f"gamma={gamma}: {np.exp(each.value):.2f} times" for gamma, each in ratios.items()
        ),
        list(ratios.values()),
    )


def _against(column: Column, gamma: int) -> Estimate:
    """Return the logarithm of tokens a round over those of Eq. 2."""

    def ratio(sums: Floats) -> Floats:
        kept = quotient(sums[..., [0, 1]])
        found: Floats = np.log(kept + 1) - np.log(
            expected_tokens(quotient(sums[..., [0, 2]]), gamma)
        )
        return found

    rows = []
    for sample in column:
        run = sample.decoded.run
        parts = (run.kept, run.draft_rounds, run.kept + sample.decoded.broken)
        rows.append((sample.prompt.module, parts))
    return estimate(rows, ratio)


def by_task(column: Column, block: int) -> Section:
    """Return the lengths that were accepted in each family."""
    groups: dict[str, Column] = {family: of_family(column, family) for family in families(column)}
    counts = {name: accepted(group) for name, group in groups.items()}
    rows = tuple(
        (name, *(percent(at_least(found, n)) for n in (*_LENGTHS, block)), MAT.text(groups[name]))
        for name, found in counts.items()
    )
    head = ("family", *(f"{n} and more" for n in _LENGTHS), f"all {block}", "MAT")
    return Section(
        "SpecDiff App. B, Fig. 3 and 4: accepted lengths by task",
        "From the run of Table 4 without initialisation: the share of drafted rounds with so many "
        "accepted tokens. The paper draws histograms for two data sets.",
        (Table(head, rows),),
        figures={name: dict(sorted(found.items())) for name, found in counts.items()},
    )
