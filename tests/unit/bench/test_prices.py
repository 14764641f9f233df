"""Rounds at the prices of their kind: a slow moment changes neither way's cost."""

from __future__ import annotations

import pytest

from bench.compare.rows import Run
from bench.papers.prices import Prices
from bench.papers.ways import Decoded, Spent


def run(*rounds: Spent) -> Decoded:
    return Decoded(Run((), 1.0), rounds=rounds)


READING = Spent(8, 8, 3, 0.0, 0.5)
DRAFTED = Spent(8, 8, 3, 0.002, 0.006)
COPIED = Spent(8, 8, 9, 0.0, 0.006)
PLAIN = Spent(0, 0, 8, 0.0, 0.032)


def test_a_round_costs_the_median_of_its_kind() -> None:
    slow = DRAFTED._replace(waiting_s=0.04, verifying_s=0.03)
    runs = [run(READING, *[DRAFTED] * 6, slow), run(PLAIN, *[PLAIN] * 5)]
    prices = Prices.of(runs)
    assert prices.seconds(run(slow)) == pytest.approx(0.008)
    assert prices.seconds(run(COPIED)) == pytest.approx(0.006)
    assert prices.seconds(run(PLAIN, PLAIN)) == pytest.approx(0.064)
    # The reading of a prompt has no price: its round is one like others.
    assert prices.seconds(run(READING)) == pytest.approx(0.006)


def test_a_rare_kind_costs_what_its_neighbour_does() -> None:
    prices = Prices.of([run(READING, *[DRAFTED] * 6), run(PLAIN, *[PLAIN] * 6)])
    assert prices.seconds(run(Spent(9, 9, 1, 0.1, 0.2))) == pytest.approx(0.008)
    assert prices.seconds(run(Spent(0, 0, 3, 0.0, 0.2))) == pytest.approx(0.032)
