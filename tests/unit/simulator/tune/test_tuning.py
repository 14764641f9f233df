"""Each policy also tries what was found for the others."""

from __future__ import annotations

from collections.abc import Sequence

from deployments.autoscaling.config import BoundsConfig, ScalingConfig
from foredraft_simulator.tune.figures import Figures, Limits
from foredraft_simulator.tune.run import Run
from foredraft_simulator.tune.space import POLICIES, Setting
from foredraft_simulator.tune.tuning import Tuner

BASE = Setting(
    scaling=ScalingConfig(),
    drafters=BoundsConfig(min_replicas=0, max_replicas=3),
    verifiers=BoundsConfig(min_replicas=1, max_replicas=4),
)
PRICE = BASE.scaling.goodput.price
LIMITS = Limits(ttft_s=1.0, tpot_s=0.05)


def planted(settings: Sequence[Setting]) -> list[Run]:
    """Three verifiers keep the limits, and a policy has drafters unless all tokens are in time."""
    found = []
    for setting in settings:
        scaling = setting.scaling
        if scaling.policy == "static":
            drafters, verifiers = scaling.static.drafters, scaling.static.verifiers
        else:
            token_s = scaling.goodput.token_s if scaling.policy == "goodput" else None
            asked = 0 if token_s == 0.5 else 1
            drafters = max(asked, setting.drafters.min_replicas)
            verifiers = setting.verifiers.min_replicas
        ttft_s = 0.5 if verifiers >= 3 else 2.0
        cost = verifiers + PRICE * drafters
        found.append(Run(Figures(cost, ttft_s, 0.01, verifiers, drafters, 0, 1, 0), (), (), ()))
    return found


def test_no_policy_costs_more_than_the_numbers_that_it_can_be_held_to() -> None:
    found = Tuner(BASE, LIMITS, planted).tuned(POLICIES, trials=12, seed=0)
    costs = {each.policy: each.best.figures.cost for each in found}
    assert costs["static"] == costs["goodput"] == 3.0
    # One drafter is what it has with sessions, whatever the numbers are.
    assert costs["utilisation"] == 3.0 + PRICE
    assert found[-1].policy == "utilisation"
