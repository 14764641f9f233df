"""What a verdict's price says of the sessions that draft."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from verifier_service.schedule.batching import ScheduledRows
from verifier_service.schedule.costs import PassCosts
from verifier_service.schedule.market import _CALM_PASSES, _MEMORY_S, Market
from verifier_service.schedule.pricing import Priced, Unpriced


def session(drafts: bool) -> Any:
    return SimpleNamespace(
        pending=object(),
        last_pass=0,
        drafted=drafts,
        offers_draft=drafts,
        cached=100,
        needs_prefill=False,
        num_offered=4,
        num_bought=2,
        num_round_rows=lambda part: part.rows if part.decides else 0,
    )


def test_a_draft_is_remembered_for_as_long_as_a_plain_round_may_take() -> None:
    market = Market(Priced(PassCosts((1, 9), (1.0, 3.0))), prefill_rows=8, now=0.0)

    def passes(count: int, drafting: int) -> int:
        sessions = {key: session(key < drafting) for key in range(3)}
        rows = [ScheduledRows(key, 1, True) for key in sessions]
        for _ in range(count):
            market.passed(sessions, rows, 0.0, 1.0)
        return market.price.drafting

    assert passes(1, drafting=0) == 0
    assert passes(1, drafting=2) == 2
    assert passes(1, drafting=1) == 2
    assert passes(_CALM_PASSES - 2, drafting=0) == 2
    assert passes(1, drafting=0) == 1
    assert passes(1, drafting=0) == 0


def test_a_client_between_two_requests_counts_among_the_sessions() -> None:
    market = Market(Priced(PassCosts((1, 9), (1.0, 3.0))), prefill_rows=8, now=0.0)
    ended = 0.0

    def passed(count: int, seconds: float) -> int:
        nonlocal ended
        sessions = {key: session(False) for key in range(count)}
        rows = [ScheduledRows(key, 1, True) for key in sessions]
        market.passed(sessions, rows, ended, ended + seconds)
        ended += seconds
        return market.price.sessions

    assert passed(1, 0.01) == 1
    # Those that come are there at once, those that leave are so for a while.
    assert passed(4, 0.01) == 4
    assert passed(3, 0.02) == 4
    price = market.price
    assert passed(3, _MEMORY_S) == 3
    assert market.price.pass_s < price.pass_s
    assert passed(1, 10 * _MEMORY_S) == 1


def test_what_a_pass_takes_for_prompts_is_told_apart() -> None:
    market = Market(Priced(PassCosts((1, 9), (1.0, 3.0))), prefill_rows=8, now=0.0)
    sessions = {0: session(False), 1: session(False)}
    alone = [ScheduledRows(0, 1, True)]
    market.passed(sessions, alone, 0.0, 1.0)
    assert market.prefill_s == 0.0
    sessions[1].needs_prefill = True
    market.passed(sessions, [*alone, ScheduledRows(1, 8, False)], 2.0, 6.0)
    assert market.prefill_s == 3.0
    # Of a pass, what came after a round did; nothing once it has ended.
    assert [market.prefill_since(at) for at in (0.0, 2.0, 4.0, 6.0, 7.0)] == [3, 3, 1.5, 0, 0]
    # A pass without a row that decides is for prompts alone.
    market.passed(sessions, [ScheduledRows(1, 8, False)], 6.0, 8.0)
    assert market.prefill_s == 2.0
    sessions[1].needs_prefill = False
    market.passed(sessions, alone, 8.0, 9.0)
    assert market.prefill_s == 0.0


def test_without_prices_nothing_is_told_apart() -> None:
    market = Market(Unpriced(), prefill_rows=8, now=0.0)
    sessions = {0: session(False), 1: session(False)}
    sessions[1].needs_prefill = True
    market.passed(sessions, [ScheduledRows(0, 1, True), ScheduledRows(1, 8, False)], 0.0, 4.0)
    assert market.prefill_s == 0.0
