"""The sequential test of two arms: right as often as it says, and early where it is clear."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.canary.comparison import (
    Arm,
    ComparisonConfig,
    Outcome,
    Sums,
    Verdict,
    interval,
    look_at,
    verdict_at,
)
from foredraft.errors import ConfigError
from foredraft.strict import parse

CONFIG = ComparisonConfig(min_sessions=50, max_sessions=800, margin=0.05, error=0.02)


def session(noise: random.Random, mean: float, tokens_s: float) -> tuple[int, int, int, float]:
    """One session of 20 rounds, whose text is easy or hard as a whole."""
    ease = mean * noise.uniform(0.5, 1.5)
    rounds = 20
    accepted = sum(min(8, int(noise.expovariate(1 / (ease + 1e-9)))) for _ in range(rounds))
    tokens = accepted + rounds
    return accepted, rounds, tokens, tokens / (tokens_s * noise.uniform(0.8, 1.2))


def trial(seed: int, mean: float, speed: float, config: ComparisonConfig = CONFIG) -> Verdict:
    """A whole trial of a canary beside a stable arm of 2 tokens a round, 100 a second."""
    noise = random.Random(seed)
    stable, canary, looked = Arm(), Arm(), -1
    while True:
        stable = stable.of(*session(noise, 2.0, 100.0))
        canary = canary.of(*session(noise, mean, speed))
        look = look_at(stable, canary, config)
        if look is not None and look > looked:
            looked = look
            if (found := verdict_at(look, stable, canary, config)) is not None:
                return found


def test_a_bad_canary_is_rolled_back_at_the_first_look() -> None:
    for seed in range(20):
        verdict = trial(seed, mean=0.2, speed=100.0)
        assert verdict.outcome is Outcome.ROLLED_BACK
        assert "accepted tokens per round" in verdict.reason
        assert "after 50 sessions beside 50" in verdict.reason


def test_a_slow_canary_is_rolled_back_for_its_speed() -> None:
    verdict = trial(1, mean=2.0, speed=60.0)
    assert verdict.outcome is Outcome.ROLLED_BACK
    assert verdict.reason.startswith("tokens per second 6")


def test_one_that_accepts_nothing_at_all_is_rolled_back() -> None:
    assert trial(3, mean=0.0, speed=100.0).outcome is Outcome.ROLLED_BACK


def test_a_better_canary_is_promoted_and_an_equal_one_hardly_ever_called_worse() -> None:
    assert trial(5, mean=3.0, speed=130.0).outcome is Outcome.PROMOTED
    roomy = ComparisonConfig(min_sessions=50, max_sessions=1600, margin=0.15, error=0.02)
    outcomes = [trial(seed, 2.0, 100.0, roomy) for seed in range(40)]
    called_worse = [one for one in outcomes if not one.reason.startswith("no decision")]
    assert all(one.outcome is Outcome.PROMOTED for one in called_worse)
    assert len(called_worse) > 35


def test_without_a_decision_it_is_rolled_back_in_the_end() -> None:
    verdict = trial(2, 1.9, 100.0, ComparisonConfig(min_sessions=10, max_sessions=20))
    assert verdict.outcome is Outcome.ROLLED_BACK
    assert verdict.reason.startswith("no decision after 20 sessions beside 20")


def test_looks_come_at_twice_as_many_sessions_each_of_the_smaller_arm() -> None:
    def arm(sessions: int) -> Arm:
        sums = Sums(n=sessions)
        return Arm(sums, sums)

    looks = [look_at(arm(900), arm(n), CONFIG) for n in (49, 50, 99, 100, 400)]
    assert looks == [None, 0, 0, 1, 3]
    assert look_at(arm(49), arm(900), CONFIG) is None


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(1, 99)), min_size=4, max_size=20))
def test_sums_of_parts_are_the_sums_of_the_whole(sessions: list[tuple[int, int]]) -> None:
    whole, left, right = Sums(), Sums(), Sums()
    for index, (x, y) in enumerate(sessions):
        whole = whole.of(x, y)
        left, right = (left.of(x, y), right) if index % 2 else (left, right.of(x, y))
    assert left.plus(right) == whole
    assert whole.ratio == sum(x for x, _ in sessions) / sum(y for _, y in sessions)
    assert whole.variance >= 0


def test_the_interval_covers_the_difference_as_often_as_it_says() -> None:
    covered = 0
    for seed in range(300):
        noise = random.Random(seed)
        stable, canary = Arm(), Arm()
        for _ in range(100):
            stable = stable.of(*session(noise, 2.0, 100.0))
            canary = canary.of(*session(noise, 2.0, 100.0))
        found = interval(stable.accepted, canary.accepted, deviations=1.96)
        covered += found.low <= 0.0 <= found.high
    assert 0.91 < covered / 300 < 0.99


def test_bad_bounds_are_named() -> None:
    with pytest.raises(ConfigError, match="max_sessions"):
        parse(ComparisonConfig, {"min_sessions": 100, "max_sessions": 50})
