"""A ramp that really ran, replayed in the simulator: the same decisions in the same order."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from bench.ramp.replay import (
    RECORDED,
    STEP_S,
    arrivals_of,
    as_markdown,
    compared,
    in_order,
    mean_s,
    rate_of,
    replayed,
    scenario_of,
    starts_s,
)
from bench.ramp.run import Change


def test_the_recorded_ramp_is_decided_the_same_when_it_is_simulated() -> None:
    recorded = json.loads(RECORDED.read_text())
    real = [Change(**each) for each in recorded["changes"]]
    scenario = scenario_of(recorded["configuration"], starts_s(recorded), 60.0)
    outcome = replayed(scenario, arrivals_of(recorded), rate_of(recorded), seed=0)
    assert outcome.errors == 0
    found = compared(real, outcome)
    assert in_order(found), as_markdown(found)
    assert all(abs(each.apart_s) <= STEP_S for each in found), as_markdown(found)
    # What was really served took as long.
    times = [each["seconds"] for each in recorded["answers"]]
    assert mean_s(outcome) == pytest.approx(sum(times) / len(times), rel=0.15)


def test_acceptance_is_that_of_the_recorded_drafts() -> None:
    # Of 8 tokens 1/2 + 1/4 + ... + 1/256.
    answers = [{"drafts": 128, "drafted": 1024, "accepted": 127}] * 2
    answers.append({"drafts": 0, "drafted": 0, "accepted": 0})
    assert rate_of({"answers": answers}) == pytest.approx(0.4998, abs=1e-3)


def test_a_start_lasts_from_the_decision_until_the_replica_serves() -> None:
    made = [("drafter", 0, 1, 5.0), ("verifier", 1, 2, 20.0), ("drafter", 1, 2, 30.0)]
    served = [
        ("verifier", 1, 0.0),
        ("drafter", 1, 9.0),
        ("verifier", 2, 28.0),
        ("drafter", 2, 36.0),
    ]
    recorded = {
        "changes": [
            {"pool": pool, "before": before, "target": target, "at_s": at}
            for pool, before, target, at in made
        ],
        "serving": [
            {"pool": pool, "replicas": replicas, "at_s": at} for pool, replicas, at in served
        ],
    }
    assert starts_s(recorded) == {"drafter": 5.0, "verifier": 8.0}
    with pytest.raises(ValueError, match="no verifier"):
        starts_s(recorded | {"changes": recorded["changes"][::2]})


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
