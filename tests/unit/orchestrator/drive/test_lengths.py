"""A session that has decoded plainly for a while learns from several rounds as one."""

from __future__ import annotations

from typing import TypeAlias

import pytest

from foredraft.types import Price
from orchestrator.controller_state import ControllerState
from orchestrator.drive.lengths import DraftLengths
from orchestrator.length.controllers import Cause, Cost, Observation

_PRICE = Price(4, 0.01, 0.001)
_PLAIN = Cost(0, 0, 0, 1, 0.5, 0.25, _PRICE, 1, 1)

Rounds: TypeAlias = tuple[Cost, ...]


class _Rounds:
    """Its state is the rounds that it learnt from; with three of them it drafts."""

    max_k = 4

    def initial(self) -> Rounds:
        return ()

    def resumed(self, saved: Rounds, price: Price) -> tuple[Rounds, Rounds]:
        return saved, saved

    def joined(self, state: Rounds, other: Rounds) -> Rounds:
        return state

    def ended(self, saved: Rounds, state: Rounds) -> Rounds:
        return state

    def update(self, state: Rounds, observation: Observation) -> Rounds:
        return state

    def spent(self, state: Rounds, cost: Cost) -> Rounds:
        return (*state, cost)

    def next_k(self, state: Rounds) -> int:
        return self.choose(state)[0]

    def begin_pays(self, state: Rounds, rows: int, opening_s: float, tokens_left: int) -> bool:
        return True

    def choose(self, state: Rounds) -> tuple[int, Cause, str]:
        return (4, Cause.DRAFTS, "") if len(state) > 2 else (0, Cause.PLAIN, "")


def _after(*costs: Cost) -> Rounds:
    saved = ControllerState()
    lengths = DraftLengths(_Rounds(), saved, 0.2)
    for cost in costs:
        lengths.observe(None, cost)
    lengths.save()
    return saved.start_state(_Rounds())


def test_a_round_of_a_session_that_is_not_idle_is_learnt_from_at_once() -> None:
    assert _after(_PLAIN, _PLAIN) == (_PLAIN, _PLAIN)


def test_four_tokens_of_an_idle_session_are_learnt_from_as_one_round() -> None:
    four = Cost(0, 0, 0, 4, 2.0, 1.0, _PRICE, 4, 4)
    assert _after(*[_PLAIN] * 6) == (_PLAIN, _PLAIN, four)


@pytest.mark.parametrize(("sessions", "tokens"), [(1, 4), (8, 8), (16, 16), (64, 16)])
def test_the_more_sessions_share_passes_the_more_tokens_an_idle_one_learns_from_at_once(
    sessions: int, tokens: int
) -> None:
    plain = _PLAIN._replace(price=_PRICE._replace(sessions=sessions))
    assert [cost.tokens for cost in _after(*[plain] * (tokens + 3))] == [1, 1, tokens, 1]


def test_the_choice_holds_meanwhile() -> None:
    lengths = DraftLengths(_Rounds(), ControllerState(), 0.2)
    wanted = []
    for _ in range(6):
        lengths.observe(None, _PLAIN)
        wanted.append(lengths.wants_draft)
    assert wanted == [False] * 5 + [True]


def test_a_session_that_wants_a_draft_is_learnt_from_at_once() -> None:
    # None is requested: to begin does not pay.
    four = Cost(0, 0, 0, 4, 2.0, 1.0, _PRICE, 4, 4)
    assert _after(*[_PLAIN] * 8) == (_PLAIN, _PLAIN, four, _PLAIN, _PLAIN)


def test_what_an_idle_session_has_not_learnt_from_is_learnt_at_its_end() -> None:
    two = Cost(0, 0, 0, 2, 1.0, 0.5, _PRICE, 2, 2)
    assert _after(*[_PLAIN] * 4) == (_PLAIN, _PLAIN, two)


def test_rounds_of_another_load_and_drafted_ones_are_kept_apart() -> None:
    alone = _PLAIN._replace(price=Price(1, 0.001, 0.001))
    assert _after(*[_PLAIN] * 3, alone) == (_PLAIN, _PLAIN, _PLAIN, alone)
    beside = _PLAIN._replace(price=_PRICE._replace(drafting=2))
    assert _after(*[_PLAIN] * 3, beside) == (_PLAIN, _PLAIN, _PLAIN, beside)
    drafted = Cost(4, 4, 2, 3, 0.5, 0.25, _PRICE, 1, 1)
    assert _after(*[_PLAIN] * 3, drafted) == (_PLAIN, _PLAIN, _PLAIN, drafted)


def test_rounds_go_with_each_other_while_a_few_sessions_come_and_go() -> None:
    one_more = _PLAIN._replace(price=_PRICE._replace(sessions=3))
    assert _after(*[_PLAIN] * 3, one_more)[2:] == (_PLAIN.and_then(one_more),)


def test_a_drafter_that_is_left_takes_what_was_not_learnt_from_with_it() -> None:
    saved = ControllerState()
    lengths = DraftLengths(_Rounds(), saved, 0.2)
    for _ in range(4):
        lengths.observe(None, _PLAIN)
    lengths.reset()
    lengths.observe(None, _PLAIN)
    lengths.save()
    assert saved.start_state(_Rounds()) == (_PLAIN,)
