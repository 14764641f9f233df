"""A pass waits for rounds that are about to come where that pays, and never for long."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verifier_service.schedule.gathering import Coming, Gathering, best_wait_s


def flat(rows: float) -> float:
    """Weights decide: one row costs what a hundred cost."""
    return 1.0


def linear(rows: float) -> float:
    """Each row costs the same."""
    return 0.1 * rows


def test_where_rows_are_free_a_lone_round_waits_for_the_others() -> None:
    assert best_wait_s(1, 1, [Coming(0.2, 1, 1)] * 31, flat) == 0.2
    # Half of them is here: the others come in the time that a pass of theirs would take.
    assert best_wait_s(16, 16, [Coming(0.9, 1, 1)] * 16, flat) == 0.9
    assert best_wait_s(16, 16, [Coming(1.1, 1, 1)] * 16, flat) == 0.0


def test_for_one_round_of_many_hardly_any_time_is_worth_it() -> None:
    assert best_wait_s(15, 15, [Coming(0.1, 1, 1)], flat) == 0.0
    assert best_wait_s(15, 15, [Coming(0.05, 1, 1)], flat) == 0.05


@given(st.lists(st.floats(0.001, 1), max_size=8), st.integers(1, 9))
def test_where_each_row_costs_the_same_nothing_is_waited_for(times: list[float], rows: int) -> None:
    assert best_wait_s(rows, rows, [Coming(t, 1, 1) for t in times], linear) == 0.0


def test_those_who_come_late_are_left() -> None:
    coming = [Coming(0.1, 1, 1), Coming(0.1, 1, 1), Coming(9.0, 1, 1)]
    assert best_wait_s(1, 1, coming, flat) == 0.1


def gathered(count: int, away_s: float) -> Gathering:
    """Sessions 1, 2, ... that come back after a time, and left at 100 s the last time."""
    gathering = Gathering()
    for key in range(1, count + 1):
        for at in (0.0, 50.0):
            gathering.came(key, at)
            gathering.left(key, at + 50.0 - away_s if at == 0.0 else 100.0, 1, 1)
    return gathering


def test_sessions_are_expected_back_when_they_usually_are() -> None:
    gathering = gathered(4, 0.2)
    gathering.came(1, 100.05)
    assert gathering.wait_s({1}, {}, 100.05, flat) == pytest.approx(0.15)
    # Overdue by a little: a little longer; and never longer than a pass in all.
    assert gathering.wait_s({1}, {}, 100.25, flat) == pytest.approx(0.05)
    assert gathering.wait_s({1}, {}, 101.0, flat) == pytest.approx(0.05)
    assert gathering.wait_s({1}, {}, 101.1, flat) == 0.0
    gathering.began()
    assert gathering.wait_s({1}, {}, 101.1, flat) == pytest.approx(0.9)


def test_nobody_waits_for_the_unknown_the_present_and_the_gone() -> None:
    gathering = gathered(2, 0.2)
    gathering.came(3, 100.0)
    gathering.left(3, 100.0, 1, 1)
    assert gathering.wait_s({1, 2}, {}, 100.1, flat) == 0.0
    gathering.closed(2)
    assert gathering.wait_s({1}, {}, 100.1, flat) == 0.0


def test_where_costs_are_not_known_no_pass_waits() -> None:
    assert gathered(4, 0.2).wait_s({1}, {}, 100.1, lambda rows: 0.0) == 0.0


def opened(first_s: float) -> Gathering:
    """A session that opened at 100 s, after one whose first round came so many seconds later."""
    gathering = Gathering()
    gathering.opened(1, 50.0)
    gathering.came(1, 50.0 + first_s)
    gathering.closed(1)
    gathering.opened(2, 100.0)
    return gathering


def test_the_end_of_a_prompt_waits_for_its_first_round() -> None:
    # A pass of its own would take 1 s.
    assert opened(0.2).wait_s({2}, {2: 9}, 100.05, flat) == pytest.approx(0.15)
    assert opened(1.2).wait_s({2}, {2: 9}, 100.0, flat) == 0.0


def test_where_each_row_costs_the_same_a_first_round_is_waited_for_no_longer_than_its_row() -> None:
    assert opened(0.09).wait_s({2}, {2: 9}, 100.0, linear) == pytest.approx(0.0)
    assert opened(0.01).wait_s({2}, {2: 9}, 100.0, lambda rows: 0.1 + 0.01 * rows) > 0


def test_a_prompt_of_several_passes_waits_for_nothing() -> None:
    assert opened(0.2).wait_s({2}, {}, 100.0, flat) == 0.0


def test_no_first_round_is_expected_before_one_is_known_nor_after_it_came() -> None:
    gathering = Gathering()
    gathering.opened(1, 100.0)
    assert gathering.wait_s({1}, {1: 9}, 100.0, flat) == 0.0
    gathering = opened(0.2)
    gathering.came(2, 100.2)
    gathering.left(2, 101.0, 1, 1)
    # How long it takes between its rounds is not known yet.
    assert gathering.wait_s({3}, {}, 101.0, flat) == 0.0


def test_many_rounds_do_not_wait_for_one_prompts_first() -> None:
    gathering = opened(0.2)
    for key in range(10, 30):
        gathering.came(key, 99.0)
    assert gathering.wait_s({2, *range(10, 30)}, {2: 9}, 100.0, flat) == 0.0
