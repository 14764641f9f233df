"""Intervals over modules, and what may be said of a table's claims together."""

from __future__ import annotations

import numpy as np
import pytest

from bench.papers.inference.bootstrap import LEAST_UNITS, difference, estimate, quotient
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

HOLDS, CONTRADICTED = Verdict.HOLDS, Verdict.CONTRADICTED


def rows(values: list[float], modules: int) -> list[tuple[str, tuple[float, float]]]:
    return [(str(number % modules), (value, 1.0)) for number, value in enumerate(values)]


def test_an_estimate_is_the_statistic_of_all_rows() -> None:
    found = estimate(rows([1.0, 2.0, 3.0, 6.0], 2), quotient)
    assert found.value == 3.0 and found.units == 2
    apart = estimate([("a", (4.0, 2.0, 0.0, 0.0)), ("b", (0.0, 0.0, 3.0, 3.0))], difference)
    assert apart.value == 1.0


def test_few_modules_tell_nothing_however_many_prompts() -> None:
    found = estimate(rows([1.0] * 1000, LEAST_UNITS - 1), quotient)
    assert found.chance_at_most(0) == 1 and found.interval == (-np.inf, np.inf)
    assert estimate(rows([1.0] * 1000, LEAST_UNITS), quotient).chance_at_most(0) < 0.001


def test_prompts_of_one_module_count_as_one() -> None:
    random = np.random.default_rng(1)
    means = random.normal(0, 1, 12)
    often = [(str(m), (means[m], 1.0)) for m in range(12) for _ in range(50)]
    once = [(str(m), (means[m], 1.0)) for m in range(12)]
    assert estimate(often, quotient).interval == pytest.approx(estimate(once, quotient).interval)


@pytest.mark.parametrize("modules", [LEAST_UNITS, 18])
def test_an_interval_holds_the_truth_about_as_often_as_it_says(modules: int) -> None:
    random = np.random.default_rng(modules)
    tries = 400
    missed = 0
    for _ in range(tries):
        low, high = estimate(
            rows(random.normal(2, 1, modules).tolist(), modules), quotient
        ).interval
        missed += not low <= 2 <= high
    # 5 % are said to be; the test's own error is 1 %.
    assert missed / tries < 0.08


def test_holm_lets_the_weaker_stand_behind_the_stronger() -> None:
    claims = [[Evidence(HOLDS, chance)] for chance in (0.001, 0.02, 0.04)]
    assert verdicts(claims) == [HOLDS, HOLDS, HOLDS]
    claims = [[Evidence(HOLDS, chance)] for chance in (0.001, 0.03, 0.04)]
    assert verdicts(claims) == [HOLDS, Verdict.OPEN, Verdict.OPEN]


@pytest.mark.parametrize("modules", [LEAST_UNITS, 18])
def test_a_table_of_ways_that_are_alike_seldom_says_otherwise(modules: int) -> None:
    random = np.random.default_rng(modules)
    tables = 300
    wrong = 0
    for _ in range(tables):
        noise = random.normal(0, 1, (5, modules)).tolist()
        claims = [Sides.above(estimate(rows(each, modules), quotient)).evidence for each in noise]
        wrong += bool({HOLDS, CONTRADICTED} & set(verdicts(claims)))
    # 5 % are said to be; the test's own error is 1.3 %.
    assert wrong / tables < 0.09


def test_the_first_verdict_that_stands_is_a_claims() -> None:
    evidence = (Evidence(HOLDS, 0.5), Evidence(CONTRADICTED, 1.0), Evidence(Verdict.EQUIVALENT, 0))
    assert verdicts([evidence]) == [Verdict.EQUIVALENT]
    assert verdicts([()]) == [Verdict.OPEN]


def of(mean: float, spread: float = 0.01) -> Sides:
    values = [mean - spread, mean + spread] * 6
    return Sides.of(estimate(rows(values, 12), quotient), margin=0.1)


def test_sides_of_a_difference() -> None:
    assert of(0.5).up < 0.001 and of(0.5).down == 1 and of(0.5).alike == 1
    assert of(-0.5).down < 0.001 and of(-0.5).swapped.up < 0.001
    alike, apart = of(0.001, 0.02).alike, of(0.0, 3.0).alike
    assert alike is not None and alike < 0.001
    assert apart is not None and apart > 0.3


def test_every_and_some() -> None:
    up, down = of(0.5), of(-0.5)
    assert verdicts([every([up, up]).evidence]) == [HOLDS]
    assert verdicts([every([up, down]).evidence]) == [CONTRADICTED]
    assert verdicts([some([up, down]).evidence]) == [HOLDS]
    assert verdicts([some([down, down]).evidence]) == [CONTRADICTED]
    # Of many, one is low by chance.
    assert some([Sides(0.01, 1.0)] * 10).up == pytest.approx(0.1)


def test_alike_fails_where_one_is_apart() -> None:
    near, far = (estimate(rows([mean - 0.01, mean + 0.01] * 6, 12), quotient) for mean in (0, -1))
    assert verdicts([alike([near, near], 0.1)]) == [HOLDS]
    assert verdicts([alike([near, far], 0.1)]) == [CONTRADICTED]


def test_what_is_counted_needs_no_sample() -> None:
    assert verdicts([counted(True), counted(False)]) == [HOLDS, CONTRADICTED]
