"""A ramp that really ran, replayed in the simulator: each pool makes the same decisions."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from bench.ramp.replay import (
    RECORDED,
    arrivals_of,
    as_markdown,
    compared,
    in_order,
    mean_s,
    replayed,
    scenario_of,
)
from bench.ramp.run import Change


def test_in_the_recorded_ramp_each_pool_decides_the_same_when_it_is_simulated() -> None:
    recorded = json.loads(RECORDED.read_text())
    real = [Change(**each) for each in recorded["changes"]]
    assert [(each.pool, each.before, each.target) for each in real].count(("drafter", 1, 2)) == 1
    outcome = replayed(scenario_of(recorded, 6.0, 60.0), arrivals_of(recorded), 0.45, seed=0)
    assert outcome.errors == 0
    found = compared(real, outcome)
    assert all(each.same for each in found), as_markdown(found)
    # As far back as signals are looked, and a hold.
    assert all(abs(each.apart_s) < 15 for each in found), as_markdown(found)
    # What was really served took as long.
    times = [each["seconds"] for each in recorded["answers"]]
    assert mean_s(outcome) == pytest.approx(sum(times) / len(times), rel=0.1)


def changes(*made: tuple[float, str, int, int]) -> list[Change]:
    return [Change(at, pool, before, target, target, "") for at, pool, before, target in made]


def outcome_of(found: list[Change]):
    decisions = [
        SimpleNamespace(time_s=at, pool=pool, before=before, target=target, wish=wish, line=line)
        for at, pool, before, target, wish, line in found
    ]
    return SimpleNamespace(decisions=decisions)


REAL = changes((8, "drafter", 0, 1), (20, "verifier", 1, 2), (22, "drafter", 1, 2))


@pytest.mark.parametrize(
    ("made", "same"),
    [
        (REAL, True),
        # Within one step of each other, in the real run.
        (changes((9, "drafter", 0, 1), (21, "drafter", 1, 2), (23, "verifier", 1, 2)), True),
        # Farther apart than that.
        (changes((9, "verifier", 1, 2), (11, "drafter", 0, 1), (23, "drafter", 1, 2)), False),
        (changes((8, "drafter", 0, 2), (20, "verifier", 1, 2)), False),
        (REAL[:2], False),
        ([*REAL, *changes((30, "drafter", 2, 1))], False),
    ],
)
def test_what_counts_as_the_same(made: list[Change], same: bool) -> None:
    assert in_order(compared(REAL, outcome_of(made))) is same
