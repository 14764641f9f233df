"""Targets follow wishes slowly: what lasts only a moment changes nothing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from deployments.autoscaling.policies.port import Wish
from deployments.autoscaling.steps import StepConfig, Wished, stepped

CONFIG = StepConfig(up_hold_s=2, down_hold_s=5, max_step=2)


def targets(wishes, config=CONFIG, target=1):
    """The targets after a wish at each second."""
    state, found = Wished(), []
    for now, wish in enumerate(wishes):
        state, decision = stepped(state, float(now), target, Wish(wish, "test"), config)
        assert decision.before == target
        target = decision.target
        found.append(target)
    return found


def test_more_is_there_once_it_was_wished_for_long_enough() -> None:
    assert targets([3, 3, 3, 3]) == [1, 1, 3, 3]


def test_a_peak_of_a_moment_changes_nothing() -> None:
    assert targets([1, 1, 1, 4, 1, 1, 4, 1]) == [1] * 8


def test_fewer_are_there_once_no_more_were_wished_for_long_enough() -> None:
    assert targets([4, 4, 1, 1, 1, 1, 1, 1, 1], target=4) == [4] * 7 + [2, 1]


def test_a_step_has_a_bound() -> None:
    assert targets([9] * 6) == [1, 1, 3, 5, 7, 9]


def test_without_holds_a_pool_follows_at_once() -> None:
    at_once = StepConfig(up_hold_s=0, down_hold_s=0, max_step=100)
    assert targets([3, 1, 5, 0], at_once) == [3, 1, 5, 0]


@given(st.lists(st.integers(0, 6), min_size=1, max_size=30), st.integers(0, 6))
def test_a_target_is_never_beyond_what_was_wished_for(wishes: list[int], start: int) -> None:
    found = targets(wishes, target=start)
    seen = [start]
    for wish, target in zip(wishes, found, strict=True):
        seen.append(wish)
        assert min(seen) <= target <= max(seen)
