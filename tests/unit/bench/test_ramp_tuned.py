"""What tuned policies cost on a real cluster and in the simulator, by their decisions alone."""

from __future__ import annotations

import json

import pytest

from bench.ramp.replay import RECORDED
from bench.ramp.tuned import (
    PLAN,
    Outcome,
    Row,
    as_markdown,
    configuration,
    cost_s,
    load,
    simulated_pair,
)
from deployments.config import ServeFile
from foredraft.strict import parse
from foredraft_simulator.tune.space import POLICIES, Setting
from foredraft_simulator.tune.tuning import base_setting


@pytest.fixture(scope="module")
def setting() -> Setting:
    recorded = json.loads(RECORDED.read_text())
    return base_setting(simulated_pair(recorded, parse(ServeFile, configuration())))


def test_replicas_cost_from_the_decision_on(setting: Setting) -> None:
    assert cost_s(setting, [], 100.0) == 100.0
    steps = [(10.0, "verifier", 2), (40.0, "drafter", 2), (60.0, "verifier", 1)]
    assert cost_s(setting, steps, 100.0) == pytest.approx(10 + 2 * 50 + 40 + 0.43 * 2 * 60)
    # What was decided before the first request, and after the last moment that is counted.
    steps = [(-5.0, "drafter", 1), (120.0, "drafter", 0)]
    assert cost_s(setting, steps, 100.0) == pytest.approx(143.0)


def test_the_load_is_the_plans_with_prompts_of_the_recorded_lengths() -> None:
    recorded = json.loads(RECORDED.read_text())
    found = load(recorded, PLAN)
    assert len(found) == sum(int(phase.rate * phase.seconds) for phase in PLAN.phases)
    assert {each.prompt_tokens for each in found} == {
        each["prompt_tokens"] for each in recorded["arrivals"]
    }
    assert found[-1].time_s < PLAN.seconds


def test_costs_are_compared_with_those_of_goodput() -> None:
    costs = dict(zip(POLICIES, (150.0, 120.0, 100.0), strict=True))
    rows = [
        Row(policy, Outcome(cost, 0.05), Outcome(2 * cost, 0.06), 9, 9, ())
        for policy, cost in costs.items()
    ]
    table = as_markdown(rows)
    assert "| `static` | 150, 300 | +50%, +50% | 50, 60 | 0 | 9/9 |" in table
    assert "| `goodput` | 100, 200 | +0%, +0% |" in table
