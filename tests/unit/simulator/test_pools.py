"""Pools over time: replicas that start, stop, are lost, and are scaled by the real policies."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from foredraft.errors import ConfigError, Unavailable
from foredraft.strict import parse
from foredraft_simulator.cluster.pool import SimulatedPool
from foredraft_simulator.scenario.pools import VerifierPoolConfig
from foredraft_simulator.scenario.scenario import Scenario, ServeConfig
from foredraft_simulator.simulate import simulate
from foredraft_simulator.traces.arrival import Arrival
from foredraft_simulator.virtual.loop import run_virtual
from tests.support.scenarios import scenario


class Engine:
    """As much of an engine as a pool looks at."""

    steps = 3

    def __init__(self) -> None:
        self.failed = False

    def fail(self) -> None:
        self.failed = True


class Replica:
    """A replica with as many sessions as it is given."""

    def __init__(self, address: str) -> None:
        self.address, self.draining, self.sessions = address, False, 0
        self.engine: Any = Engine()


def pool(**changes: Any) -> SimulatedPool[Replica]:
    config = VerifierPoolConfig(**{"replicas": 1, "cold_start_s": 10, "drain_s": 5, **changes})
    serve = ServeConfig(choose_s=0, replace_s=2)
    return SimulatedPool("verifier", config, serve, Replica, Random(0))


def test_replicas_start_after_their_cold_start_and_are_paid_for_from_the_decision() -> None:
    async def main() -> tuple[list[int], float]:
        there = pool()
        there.scale(3)
        served = []
        for _ in range(2):
            await asyncio.sleep(9.5)
            served.append(len(there.serving))
        return served, there.replica_seconds

    assert run_virtual(main()) == ([1, 3], 3 * 19.0)


@pytest.mark.parametrize(("sessions", "seconds"), [(0, 0.0), (1, 5.0)])
def test_a_replica_that_stops_waits_for_its_sessions(sessions: int, seconds: float) -> None:
    async def main() -> tuple[float, bool, bool]:
        there = pool(replicas=2)
        last = there.serving[-1]
        last.sessions = sessions
        there.scale(1)
        await asyncio.sleep(20)
        return there.replica_seconds, last.draining, last.engine.failed

    paid, draining, failed = run_virtual(main())
    assert draining and failed
    assert paid == pytest.approx(20 + seconds, abs=0.11)


def test_a_lost_replica_is_replaced() -> None:
    async def main() -> tuple[bool, list[int]]:
        there = pool()
        first = there.serving[0]
        there.lose(1)
        with pytest.raises(Unavailable):
            await there.choose()
        served = [len(there.serving)]
        await asyncio.sleep(10.5)
        served.append(len(there.serving))
        assert there.find(first.address) is None
        return first.engine.failed, served

    assert run_virtual(main()) == (True, [0, 1])


BOUNDS = {"min_replicas": 1, "max_replicas": 4}
SCALED: dict[str, Any] = {
    "drafter": {"autoscaling": {**BOUNDS, "min_replicas": 0}},
    "verifier": {"autoscaling": BOUNDS},
    "settle_s": 40,
    "scaling": {
        "policy": "utilisation",
        "warm_up_s": 2,
        "verifier_steps": {"up_hold_s": 2, "down_hold_s": 10},
        "drafter_steps": {"up_hold_s": 2, "down_hold_s": 10},
    },
    "acceptance": {"rates": [0.6]},
}


def test_the_real_policy_scales_both_pools_and_says_why() -> None:
    arrivals = [Arrival(0.5 * number, 10, 100) for number in range(40)]
    outcome = simulate(scenario(**SCALED), arrivals, 3)
    sizes = [size.target for size in outcome.pools["verifier"].sizes]
    assert max(sizes) > 1
    assert sizes[-1] == 1
    assert outcome.pools["drafter"].sizes[-1].target == 0
    assert outcome.errors == 0
    lines = [each.line for each in outcome.decisions if each.target > each.before]
    assert lines[0] == "autoscaling drafter: 0 -> 1, wished for 1: 2 sessions"
    assert any(line.startswith("autoscaling verifier: 1 -> 2, wished for") for line in lines)
    again = simulate(scenario(**SCALED), arrivals, 3)
    assert again.decisions == outcome.decisions


def test_a_dry_run_changes_nothing() -> None:
    scaling = {**SCALED["scaling"], "dry_run": True}
    arrivals = [Arrival(0.5 * number, 10, 100) for number in range(20)]
    outcome = simulate(scenario(**{**SCALED, "scaling": scaling}), arrivals)
    assert {size.target for size in outcome.pools["verifier"].sizes} == {1}
    assert any("(dry run)" in each.line for each in outcome.decisions)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"verifierz": {}}, "verifierz: unknown key"),
        ({"verifier": {"replicas": 0}}, r"verifier\.replicas"),
        ({"drafter": {"link": {"loss": 1.0}}}, r"drafter\.link\.loss"),
        ({"scaling": {}}, "go together"),
        ({"failures": [{"at_s": 1, "pool": "drafter", "kind": "cut"}]}, "for_s"),
        ({"acceptance": {"kind": "by_depth", "rates": [2.0]}}, r"acceptance\..*rates"),
        ({"acceptance": {"kind": "magic"}}, "acceptance"),
        ({"verifier": {"curve": {"rows": [2, 1], "seconds": [1, 1]}}}, "ascend"),
    ],
)
def test_a_bad_scenario_is_refused_by_its_path(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse(Scenario, values)
