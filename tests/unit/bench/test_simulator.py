"""What the comparison of the simulator with real runs computes."""

from __future__ import annotations

import pytest

from bench.simulator.cases import CALIBRATION, CASES
from bench.simulator.scale import at_once, point, scenario
from bench.simulator.validate import Figures, Machine, as_markdown, figures, on, pairs_in_order
from foredraft_simulator.outcome import RequestOutcome


def request(number: int, first_s: float, last_s: float, error: str = "") -> RequestOutcome:
    return RequestOutcome(number, 1.0, 8, 11, first_s, last_s, error, 3, 8, 8, 8, 0, 0)


def test_figures_are_of_the_clients_times() -> None:
    found = figures([request(0, 1.5, 2.5), request(1, 2.0, 4.0, "lost")], 11.0)
    assert found == pytest.approx(Figures(2.0, 750.0, 1000.0, 150.0, 200.0, 1))


def test_only_pairs_that_differ_have_an_order() -> None:
    assert pairs_in_order([1.0, 2.0, 2.01], [1.1, 1.9, 1.8]) == (2, 2)
    assert pairs_in_order([1.0, 2.0, 4.0], [4.0, 2.0, 1.0]) == (0, 3)


def test_the_table_says_how_far_the_worst_case_is_off() -> None:
    real = Figures(100.0, 10.0, 20.0, 5.0, 8.0, 0)
    model = Figures(110.0, 10.0, 20.0, 5.0, 6.0, 0)
    table = as_markdown([("a", real, real), ("b", real, model)])
    assert "| b | 100.0, 110.0 | +10.0% |" in table
    assert "tokens/s 5.0% on average, 10.0% at most" in table
    assert "p99 TPOT 12.5% on average, 25.0% at most" in table


def test_what_a_machine_adds_is_added_to_what_a_case_has() -> None:
    far = next(case for case in CASES if "2 ms" in case.name)
    both = on(Machine(0.5, 1.0, 0.2, 0.1), far.scenario)
    assert both.drafter.link.delay_ms == far.scenario.drafter.link.delay_ms + 0.5
    assert (both.verifier.host_s, both.verifier.host_session_s) == (0.001, 0.0002)
    parts = (both.ingress, both.drafter, both.verifier)
    assert [part.message_s for part in parts] == [0.0001] * 3


def test_calibration_is_by_the_first_cases() -> None:
    assert CASES[: len(CALIBRATION)] == CALIBRATION


def test_a_point_of_a_sweep_is_a_simulation() -> None:
    found = point("plain", 2.0, scenario(2, speculate=False), at_once(4, 8))
    assert (found.curve, found.at) == ("plain", 2.0)
    assert found.per_replica == pytest.approx(found.tokens_per_s / 2)
    assert found.events > 0
