"""Draft lengths, by hand from DiffuSpec Eq. 8-10."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foredraft.errors import ConfigError
from foredraft.strict import parse
from orchestrator.config import OrchestratorConfig
from orchestrator.length.config import DiffuSpecConfig, PlainConfig
from orchestrator.length.controllers import (
    PLAIN,
    AcceptanceController,
    DiffuSpecController,
    DraftLengthController,
    FixedController,
    Observation,
)

PAPER = DiffuSpecController(k_min=20, k_max=30, rho=0.5, delta=10)


def lengths(controller: DraftLengthController[Any], *observations: Observation) -> list[int]:
    state = controller.initial()
    out = [controller.next_k(state)]
    for observation in observations:
        state = controller.update(state, observation)
        out.append(controller.next_k(state))
    return out


def test_the_first_length_is_k_max() -> None:
    assert lengths(PAPER) == [30]


def test_the_papers_parameters_by_hand() -> None:
    # t=1: gen 15, acc 15, 15 >= 15 -> ceil(15 + 10) = 25
    # t=2: L_gen 25, L_acc 5: gen 20, acc 10 -> 20
    # t=3: L_gen 20, L_acc 20: gen 20, acc 15 -> 20
    # t=4: L_gen 6 (EOS at 7), L_acc 6: gen 13, acc 10.5 -> clip(13) = 20
    # t=5: L_gen 0, L_acc 20: gen 6.5, acc 15.25 -> ceil(16.5) = 17 -> clip = 20
    observed = [
        Observation(30, 30, 30),
        Observation(25, 25, 5),
        Observation(20, 20, 20),
        Observation(20, 6, 6),
        Observation(20, 0, 20),
    ]
    assert lengths(PAPER, *observed) == [30, 25, 20, 20, 20, 20]


def test_averages_and_ceiling_by_hand() -> None:
    wide = DiffuSpecController(k_min=1, k_max=100, rho=0.25, delta=3)
    state = wide.update(wide.initial(), Observation(100, 10, 4))
    assert (state.generated, state.accepted, state.k) == (2.5, 1.0, 3)
    state = wide.update(state, Observation(3, 3, 3))
    assert (state.generated, state.accepted, state.k) == (2.625, 1.5, 3)
    state = wide.update(state, Observation(3, 1, 9))
    assert (state.generated, state.accepted, state.k) == (2.21875, 3.375, 6)


def test_delta_is_added_when_the_averages_are_equal() -> None:
    even = DiffuSpecController(k_min=1, k_max=50, rho=1.0, delta=0.5)
    assert lengths(even, Observation(8, 8, 8), Observation(9, 9, 8)) == [50, 9, 9]


def test_generated_length_is_capped_at_what_was_asked() -> None:
    assert lengths(PAPER, Observation(4, 4_000_000_000, 0)) == lengths(PAPER, Observation(4, 4, 0))


@given(
    st.lists(
        st.builds(Observation, st.integers(1, 64), st.integers(0, 1 << 32), st.integers(0, 64))
    )
)
def test_lengths_stay_between_the_guardrails(observed: list[Observation]) -> None:
    assert all(20 <= k <= 30 for k in lengths(PAPER, *observed))


ACCEPTANCE = AcceptanceController(k_min=2, k_max=15, k_start=8, rho=0.5, delta=3.0)


def test_acceptance_follows_the_average_by_hand() -> None:
    rejected, kept = Observation(8, 8, 0), Observation(15, 15, 15)
    # Averages from 5: 2.5, 1.25, 0.625; then towards 15: 7.8125, 11.40625.
    assert lengths(ACCEPTANCE, rejected, rejected, rejected, kept, kept) == [8, 6, 5, 4, 11, 15]


def test_acceptance_recovers_from_the_shortest_length() -> None:
    """A block that is kept whole makes the next one longer, whatever came before."""
    state = ACCEPTANCE.initial()
    for _ in range(50):
        state = ACCEPTANCE.update(state, Observation(3, 3, 0))
    lengths_seen = []
    for _ in range(20):
        k = ACCEPTANCE.next_k(state)
        lengths_seen.append(k)
        state = ACCEPTANCE.update(state, Observation(k, k, k))
    assert lengths_seen == sorted(lengths_seen)
    assert lengths_seen[-1] == 15


def test_fixed_and_plain_never_change() -> None:
    fixed: list[tuple[DraftLengthController[Any], int]] = [(FixedController(7), 7), (PLAIN, 0)]
    for controller, k in fixed:
        state = controller.update(controller.initial(), Observation(7, 7, 0))
        assert (controller.next_k(state), controller.max_k) == (k, k)


def test_the_controller_is_chosen_by_name() -> None:
    config = parse(OrchestratorConfig, {"adl": {"name": "fixed", "k": 5}})
    assert config.adl.controller() == FixedController(5)
    assert PlainConfig().controller() is PLAIN
    assert DiffuSpecConfig(k_min=20, k_max=30, delta=10).controller() == PAPER


@pytest.mark.parametrize(
    ("values", "path"),
    [
        ({"adl": {"name": "diffuspec", "kmax": 5}}, "kmax"),
        ({"adl": {"name": "magic"}}, "adl"),
        ({"adl": {"name": "diffuspec", "k_min": 9, "k_max": 8}}, "adl"),
        ({"adl": {"name": "diffuspec", "rho": 0}}, "rho"),
        ({"drafter_deadline": 3}, "drafter_deadline"),
        ({"proposal": "best"}, "proposal"),
    ],
)
def test_a_bad_value_is_named(values: dict[str, object], path: str) -> None:
    with pytest.raises(ConfigError, match=path):
        parse(OrchestratorConfig, values)
