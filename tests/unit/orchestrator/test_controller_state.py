"""What a session learns is known to the others of its kind, and where the next one starts."""

from __future__ import annotations

from foredraft.types import Price, SamplingParams
from orchestrator.config import OrchestratorConfig
from orchestrator.controller_state import ControllerState, ControllerStates
from orchestrator.drive.lengths import DraftLengths
from orchestrator.length.config import DiffuSpecConfig, GoodputConfig
from orchestrator.length.controllers import Cause, Cost, Observation


def test_a_learning_controller_goes_on_where_the_last_session_ended() -> None:
    goodput = GoodputConfig().controller()
    saved = ControllerState()
    assert saved.start_state(goodput) == goodput.initial()
    state = goodput.spent(goodput.initial(), Cost(4, 4, 4, 3, 0.02, 0.01))
    saved.share(goodput, state)
    saved.save(goodput, state)
    assert saved.start_state(goodput).learnt == state.learnt
    assert state.learnt.rounds == 1


def test_sessions_under_way_learn_from_each_others_rounds() -> None:
    goodput, saved = GoodputConfig().controller(), ControllerState()
    lengths = [DraftLengths(goodput, saved, 0.2) for _ in range(16)]
    assert all(each.wants_draft for each in lengths)
    costly = Cost(4, 4, 4, 1, 5.0, 4.0, Price(16, 1.0, 0.1))
    rounds = 0
    while lengths[0].wants_draft:
        for each in lengths:
            each.observe(Observation(4, 4, 0), costly)
        rounds += 1
    # By itself, each would have had 16 rounds that were expected to lose.
    assert rounds <= 4
    assert not any(each.wants_draft for each in lengths[1:])


def test_one_session_at_a_time_tries_drafts_that_are_expected_to_lose() -> None:
    goodput, saved = GoodputConfig().controller(), ControllerState()
    # A draft's rows cost eight sessions a little more than it brings.
    saved.traffic.price = Price(8, 0.01, 0.0005)
    first, second = (DraftLengths(goodput, saved, 0.2) for _ in range(2))
    assert first.next_k() and first.decision.cause is Cause.PROBE
    assert first.begin_pays(0, 100)
    first.begin()
    assert first.begin_pays(0, 100) and not second.begin_pays(0, 100)
    # Until it has found out, or ends.
    first.save()
    assert second.begin_pays(0, 100)
    second.begin()
    costly = Cost(4, 4, 4, 1, 5.0, 4.0, saved.traffic.price)
    while second.wants_draft:
        assert not first.begin_pays(0, 100)
        second.observe(Observation(4, 4, 0), costly)
    assert saved.trier is None


def test_how_well_a_text_goes_is_its_sessions_own() -> None:
    goodput, saved = GoodputConfig().controller(), ControllerState()
    mine = goodput.initial()
    other = goodput.update(mine, Observation(4, 4, 4, places=(0, 1, 2, 3)))
    saved.share(goodput, other)
    joined = saved.latest(goodput, mine)
    assert joined.learnt == other.learnt
    assert joined.text == mine.text


def test_a_session_starts_with_the_newest_price() -> None:
    goodput, saved = GoodputConfig().controller(), ControllerState()
    saved.save(
        goodput,
        goodput.spent(goodput.initial(), Cost(4, 4, 4, 3, 0.02, 0.01, Price(1, 1.0, 0.01))),
    )
    saved.traffic.price = Price(64, 1.0, 0.5)
    assert goodput.next_k(saved.start_state(goodput)) == 0


def test_one_session_gets_the_tokens_that_a_draft_may_be_tried_for() -> None:
    goodput, saved = GoodputConfig().controller(), ControllerState()
    for _ in range(3):
        saved.save(goodput, goodput.spent(goodput.initial(), Cost(0, 0, 0, 8, 0.1, 0.01)))
    assert [saved.start_state(goodput).plain_tokens for _ in range(2)] == [24, 0]


def test_sessions_that_begin_together_count_each_other() -> None:
    goodput, saved = GoodputConfig().controller(), ControllerState()
    saved.traffic.price = Price(1, 1.0, 0.01)
    saved.traffic.sessions = 3
    assert saved.start_state(goodput).price == Price(3, 1.0, 0.01)


def test_the_first_of_several_requests_expects_as_many_as_usual() -> None:
    goodput, saved = GoodputConfig().controller(), ControllerState()
    for _ in range(4):
        saved.traffic.ended(16)
    saved.traffic.price = Price(1, 1.0, 0.01)
    assert saved.start_state(goodput).price.sessions == 15
    for _ in range(6):
        saved.traffic.ended(1)
    assert saved.start_state(goodput).price.sessions == 1


def test_others_start_anew() -> None:
    saved = ControllerState()
    diffuspec = DiffuSpecConfig().controller()
    saved.save(diffuspec, diffuspec.update(diffuspec.initial(), Observation(4, 4, 4)))
    assert saved.start_state(diffuspec) == diffuspec.initial()


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
