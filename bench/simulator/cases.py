"""What is run both ways: scenarios of one device, an H100 slowed down fortyfold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from foredraft.strict import parse
from foredraft_simulator.scenario.pools import DrafterPoolConfig, VerifierPoolConfig
from foredraft_simulator.scenario.scenario import Scenario
from foredraft_simulator.traces.arrival import Arrival
from foredraft_simulator.traces.shapes import ShapeConfig, shaped

SLOWDOWN = 40.0
# Of cases that are run again with more time for the services' own code.
_MUCH_SLOWER = 160.0


@dataclass(frozen=True, slots=True)
class Case:
    """One configuration, the requests that it gets, and the seeds of its runs."""

    name: str
    scenario: Scenario
    arrivals: Sequence[Arrival]
    # Which sessions happen to draft at once moves a run's means by a fifth.
    seeds: Sequence[int] = range(1, 4)


def _scenario(slowdown: float = SLOWDOWN, **changes: Any) -> Scenario:
    """Return the scenario of one drafter and one verifier, without what this machine adds."""
    slowed = {
        "drafter": DrafterPoolConfig().pace.model_copy(update={"slowdown": slowdown}),
        "verifier": VerifierPoolConfig().pace.model_copy(update={"slowdown": slowdown}),
    }
    values: dict[str, Any] = {
        "orchestrator": {
            "adl": {"name": "goodput"},
            "verifier_led_rounds": 16,
            "draft_deadline_ms": 50 * slowdown,
            "drafter_timeout_s": slowdown,
            # As long as it may be.
            "stream_interval_ms": 1000,
        },
        "acceptance": {"rates": [0.8], "request_spread": 0.5},
    }
    for pool, pace in slowed.items():
        values[pool] = {"pace": pace.model_dump(), "link": {"delay_ms": 0.0}}
    for name, part in changes.items():
        old = values.get(name)
        values[name] = {**old, **part} if isinstance(old, dict) else part
    return parse(Scenario, values)


def _one_by_one(count: int, every_s: float) -> list[Arrival]:
    return [Arrival(number * every_s, 64, 24) for number in range(count)]


def _at_once(count: int, slowdown: float = SLOWDOWN) -> list[Arrival]:
    # Long enough that what is learnt at first is the smaller part; never just at the end of a pass
    # of 6 ms, where a moment decides whether the next one has the request.
    return [Arrival(0.7e-3 * slowdown * number, 64, 64) for number in range(count)]


_RAMP = shaped(
    ShapeConfig(
        shape="ramp", rate=0.2, peak=1.6, duration_s=30, prompt_tokens=96, output_tokens=24
    ),
    seed=1,
).arrivals
_FAR = {"link": {"delay_ms": 2 * SLOWDOWN}}
_NOT_AHEAD = {"run_ahead_min_hit_rate": 1.0}

# To these what this machine adds is fitted.
CALIBRATION = (
    Case("plain, one session", _scenario(speculate=False), _one_by_one(2, 8.0)),
    Case("plain, 24 sessions", _scenario(speculate=False), _at_once(24)),
    Case("48 sessions", _scenario(), _at_once(48)),
)


def _orchestrator(**changes: Any) -> dict[str, Any]:
    return {**_scenario().orchestrator.model_dump(mode="json"), **changes}


CASES = (
    *CALIBRATION,
    Case("one session", _scenario(), _one_by_one(4, 6.0)),
    Case("24 sessions", _scenario(), _at_once(24)),
    # Those that come one by one differ: p99 of three runs would be the slowest of 90.
    Case("plain, ramp", _scenario(speculate=False), _RAMP, range(1, 11)),
    Case("ramp", _scenario(), _RAMP, range(1, 11)),
    Case("one session, 2 ms to the drafter", _scenario(drafter=_FAR), _one_by_one(4, 6.0)),
    Case(
        "one session, 2 ms to the drafter, nothing drafted ahead",
        _scenario(drafter=_FAR, orchestrator=_orchestrator(**_NOT_AHEAD)),
        _one_by_one(4, 6.0),
    ),
    Case("two verifiers, 24 sessions", _scenario(verifier={"replicas": 2}), _at_once(24)),
    Case(
        "24 sessions, 160 times slower",
        _scenario(_MUCH_SLOWER),
        _at_once(24, _MUCH_SLOWER),
    ),
    Case(
        "two verifiers, 24 sessions, 160 times slower",
        _scenario(_MUCH_SLOWER, verifier={"replicas": 2}),
        _at_once(24, _MUCH_SLOWER),
    ),
    Case(
        "8 sessions, the drafter is lost for 2 s",
        _scenario(
            drafter={"cold_start_s": 1.0},
            serve={"replace_s": 1.0},
            failures=[{"at_s": 2.0, "pool": "drafter", "kind": "lost"}],
        ),
        _at_once(8),
    ),
)
