"""What a session learnt is where the next one of its kind starts."""

from __future__ import annotations

from foredraft.types import SamplingParams
from orchestrator.config import OrchestratorConfig
from orchestrator.controller_state import ControllerState, ControllerStates
from orchestrator.length.config import GoodputConfig
from orchestrator.length.controllers import PLAIN, Cost


def test_a_learning_controller_goes_on_where_the_last_session_ended() -> None:
    goodput = GoodputConfig().controller()
    saved = ControllerState()
    assert saved.start_state(goodput) == goodput.initial()
    state = goodput.spent(goodput.initial(), Cost(4, 3, 0.01))
    saved.save(goodput, state)
    assert saved.start_state(goodput) == state


def test_others_start_anew_and_leave_nothing_behind() -> None:
    goodput, saved = GoodputConfig().controller(), ControllerState()
    state = goodput.spent(goodput.initial(), Cost(4, 3, 0.01))
    saved.save(goodput, state)
    saved.save(PLAIN, None)
    assert saved.start_state(goodput) == state
    assert saved.start_state(PLAIN) is None


def test_kinds_are_kept_apart_and_bounded() -> None:
    states = ControllerStates()
    first = states.of(0)
    assert states.of(1) is not first and states.of(0) is first
    for kind in range(100, 170):
        states.of(kind)
    assert states.of(0) is not first


def test_greedy_and_sampled_requests_may_have_controllers_of_their_own() -> None:
    config = OrchestratorConfig.model_validate(
        {
            "adl": {
                "name": "by_temperature",
                "greedy": {"name": "fixed", "k": 11},
                "sampled": {"name": "plain"},
            }
        }
    )
    assert config.controller(SamplingParams()).max_k == 11
    assert config.controller(SamplingParams(temperature=0.5)).max_k == 0
