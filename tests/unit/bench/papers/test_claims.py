"""Claims on ways of decoding come out either way, or not at all."""

from __future__ import annotations

import pytest

from bench.papers import claims
from bench.papers.inference.bootstrap import estimate, quotient
from bench.papers.inference.verdicts import Verdict
from bench.papers.stats import MAT, SPEED, Measure
from bench.papers.ways import Column
from tests.support.papers import EVEN, FAST, SLOW, column, sample


def verdict(claim: claims.Claim) -> Verdict:
    return claims.verdicts_of([claim])[0]


HOLDS, CONTRADICTED, EQUIVALENT = Verdict.HOLDS, Verdict.CONTRADICTED, Verdict.EQUIVALENT


def test_higher() -> None:
    claim = claims.higher("", "", FAST, SLOW, SPEED)
    assert verdict(claim) is HOLDS and "times (" in claim.ours
    assert verdict(claims.higher("", "", SLOW, FAST, SPEED)) is CONTRADICTED
    assert verdict(claims.higher("", "", EVEN, EVEN, SPEED)) is EQUIVALENT
    assert verdict(claims.higher("", "", FAST, SLOW, MAT)) is HOLDS
    assert "4.50 and 1.50: +3.00" in claims.higher("", "", FAST, SLOW, MAT).ours


def test_a_claim_on_one_module_cannot_be_told() -> None:
    one, other = [sample(0.1)] * 30, [sample(0.9)] * 30
    claim = claims.higher("", "", one, other, SPEED)
    assert verdict(claim) is Verdict.OPEN and "too few modules: 1" in claim.ours


def test_noise_cannot_be_told() -> None:
    def noisy(odd: int) -> Column:
        return [
            sample(0.3 if (number + odd) % 2 else 0.6, module=f"m{number}") for number in range(12)
        ]

    assert verdict(claims.higher("", "", noisy(0), noisy(1), SPEED)) is Verdict.OPEN


@pytest.mark.parametrize("measure", [SPEED, MAT])
def test_trends_over_a_row_of_settings(measure: Measure) -> None:
    inside = {"1": SLOW, "2": FAST, "3": EVEN}
    rising = {"1": SLOW, "2": EVEN, "3": FAST}
    falling = {"1": FAST, "2": EVEN, "3": SLOW}
    found = {
        claims.peaks_inside: (inside, rising),
        claims.grows: (rising, falling),
    }
    for claim, (holds, fails) in found.items():
        assert verdict(claim("", "", holds, measure)) is HOLDS
        assert verdict(claim("", "", fails, measure)) is CONTRADICTED
    level = {"1": SLOW, "2": FAST, "3": FAST}
    assert verdict(claims.levels_off("", "", level, ["2"], measure)) is HOLDS
    assert verdict(claims.levels_off("", "", inside, ["2"], measure)) is HOLDS
    assert verdict(claims.levels_off("", "", rising, ["2"], measure)) is CONTRADICTED
    assert verdict(claims.levels_off("", "", falling, ["2"], measure)) is CONTRADICTED
    # Nothing was tried beyond.
    assert verdict(claims.levels_off("", "", rising, ["3"], measure)) is Verdict.OPEN


def test_against_several() -> None:
    others = {"a": EVEN, "b": SLOW}
    assert verdict(claims.highest("", "", FAST, others, SPEED)) is HOLDS
    assert verdict(claims.highest("", "", EVEN, {"a": SLOW, "b": FAST}, SPEED)) is CONTRADICTED
    rising, falling = {"1": SLOW, "2": FAST}, {"1": FAST, "2": SLOW}
    assert verdict(claims.grows_each("", "", [rising, rising], MAT)) is HOLDS
    assert verdict(claims.grows_each("", "", [rising, falling], MAT)) is CONTRADICTED
    assert verdict(claims.peaks_below("", "", {1: SLOW, 4: FAST, 8: EVEN}, 5, SPEED)) is HOLDS
    assert (
        verdict(claims.peaks_below("", "", {1: SLOW, 4: EVEN, 8: FAST}, 5, SPEED)) is CONTRADICTED
    )


def test_alike_and_not_below() -> None:
    near = column(0.51)
    assert verdict(claims.even("", "", {"a": EVEN, "b": near}, SPEED, 0.1)) is HOLDS
    assert verdict(claims.even("", "", {"a": EVEN, "b": FAST}, SPEED, 0.1)) is CONTRADICTED
    assert verdict(claims.within_each("", "", {"a": (near, EVEN)}, SPEED, 0.05)) is HOLDS
    assert verdict(claims.within_each("", "", {"a": (SLOW, EVEN)}, SPEED, 0.05)) is CONTRADICTED


def test_against_plain_decoding() -> None:
    slower = column(1.3)
    assert verdict(claims.pays("", "", FAST)) is HOLDS
    assert verdict(claims.pays("", "", slower)) is CONTRADICTED
    assert verdict(claims.pays("", "", column(0.99))) is EQUIVALENT
    assert verdict(claims.pays_everywhere("", "", {"a": FAST, "b": EVEN})) is HOLDS
    assert verdict(claims.pays_everywhere("", "", {"a": FAST, "b": slower})) is CONTRADICTED


def test_a_figure_and_a_bound() -> None:
    figure = estimate([(str(n), (0.2 + 0.001 * n, 1.0)) for n in range(12)], quotient)
    assert verdict(claims.above("", "", "", figure, 0.1)) is HOLDS
    assert verdict(claims.above("", "", "", figure, 0.3)) is CONTRADICTED
    assert verdict(claims.below("", "", "", figure, 0.3)) is HOLDS
    assert verdict(claims.below("", "", "", figure, 0.1)) is CONTRADICTED
    assert verdict(claims.every_above("", "", "", [figure, figure])) is HOLDS
    fallen = estimate([(str(n), (-0.2, 1.0)) for n in range(12)], quotient)
    assert verdict(claims.every_above("", "", "", [figure, fallen])) is CONTRADICTED
    assert verdict(claims.exactly("", "", "", holds=False)) is CONTRADICTED
