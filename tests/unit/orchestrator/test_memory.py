"""What a session learnt is where the next one of its kind starts."""

from __future__ import annotations

from foredraft.types import SamplingParams
from orchestrator.config import OrchestratorConfig
from orchestrator.length.config import GoodputConfig
from orchestrator.length.controllers import PLAIN, Cost
from orchestrator.memory import Memories, Memory


def test_a_learning_controller_goes_on_where_the_last_session_ended() -> None:
    goodput = GoodputConfig().controller()
    memory = Memory()
    assert memory.recall(goodput) == goodput.initial()
    state = goodput.spent(goodput.initial(), Cost(4, 3, 0.01))
    memory.keep(goodput, state)
    assert memory.recall(goodput) == state


def test_others_start_anew_and_leave_nothing_behind() -> None:
    goodput, memory = GoodputConfig().controller(), Memory()
    state = goodput.spent(goodput.initial(), Cost(4, 3, 0.01))
    memory.keep(goodput, state)
    memory.keep(PLAIN, None)
    assert memory.recall(goodput) == state
    assert memory.recall(PLAIN) is None


def test_kinds_are_kept_apart_and_bounded() -> None:
    memories = Memories()
    first = memories.of(0)
    assert memories.of(1) is not first and memories.of(0) is first
    for kind in range(100, 170):
        memories.of(kind)
    assert memories.of(0) is not first


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
    assert config.controller(SamplingParams()).longest == 11
    assert config.controller(SamplingParams(temperature=0.5)).longest == 0
