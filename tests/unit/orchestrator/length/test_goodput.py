"""Goodput picks the length with the most tokens per second, and plain decoding where that wins."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foredraft.types import Price
from orchestrator.length.config import GoodputConfig
from orchestrator.length.controllers import Cause, Cost, Observation
from orchestrator.length.goodput import GoodputController, GoodputState

ALONE = Price(sessions=1, pass_s=1.0, row_s=0.01)


def controller(**fields: object) -> GoodputController:
    made = GoodputConfig.model_validate({"lengths": (0, 2, 4, 8), **fields})
    built = made.controller()
    assert isinstance(built, GoodputController)
    return built


def live(
    goodput: GoodputController,
    rounds: int,
    accepted: int,
    price: Price = ALONE,
    away_s: float = 0.1,
    slower: float = 1.0,
    state: GoodputState | None = None,
) -> GoodputState:
    """Play rounds whose drafts are right in their first `accepted` tokens."""
    state = state or goodput.initial()
    for _ in range(rounds):
        k = goodput.next_k(state)
        if k == 0:
            state = goodput.spent(state, Cost(0, 0, 0, 8, 8.0, 0.0, price))
            continue
        kept = min(k, accepted)
        state = goodput.update(state, Observation(k, k, kept, places=tuple(range(kept))))
        seconds = away_s + price.pass_s + price.sessions * k * price.row_s
        cost = Cost(k, k, k, kept + 1, slower * seconds, away_s, price)
        state = goodput.spent(state, cost)
    return state


def test_long_drafts_where_rows_are_cheap_and_all_is_kept() -> None:
    goodput = controller()
    assert goodput.next_k(live(goodput, 40, accepted=8)) == 8


def test_short_drafts_where_little_is_kept_and_rows_cost() -> None:
    goodput = controller()
    assert goodput.next_k(live(goodput, 80, accepted=2, price=Price(1, 1.0, 0.2))) == 2


def test_plain_decoding_where_drafts_lose() -> None:
    goodput = controller(probe_share=1e-6)
    state = live(goodput, 600, accepted=0)
    assert goodput.next_k(state) == 0
    assert "plainly" in goodput.choose(state)[2]


def test_a_row_costs_every_session_in_the_pass() -> None:
    goodput = controller()
    for sessions, k in ((1, 8), (64, 0)):
        price = Price(sessions, 1.0, 0.1)
        assert goodput.next_k(live(goodput, 40, accepted=3, price=price)) in {k, 4 if k else 0}


def test_a_draft_costs_the_passes_of_others_what_it_takes_from_them() -> None:
    goodput = controller(probe_share=1e-6)
    cheap, dear = Price(4, 1.0, 0.01, 0.0), Price(4, 1.0, 0.01, 1.5)
    assert goodput.next_k(live(goodput, 400, accepted=4, price=cheap)) > 0
    assert goodput.next_k(live(goodput, 400, accepted=4, price=dear)) == 0


def test_a_bad_beginning_is_not_believed_at_once() -> None:
    goodput = controller(probe_share=1e-6)
    cold = live(goodput, 3, accepted=2, away_s=30.0)
    assert goodput.next_k(cold) > 0
    assert goodput.next_k(live(goodput, 100, accepted=6, state=cold)) == 8


def test_what_was_learnt_at_one_load_does_not_count_at_another() -> None:
    goodput = controller(probe_share=1e-6)
    busy = Price(16, 1.0, 0.001)
    state = live(goodput, 100, accepted=6)
    lost = live(goodput, 600, accepted=6, price=busy, away_s=20.0, state=state)
    assert goodput.next_k(lost) == 0
    back = goodput.spent(lost, Cost(0, 0, 0, 8, 8.0, 0.0, ALONE))
    assert goodput.next_k(back) == 8


def test_what_drafts_bring_beside_others_is_found_out_first() -> None:
    goodput = controller()
    alone = live(goodput, 40, accepted=8)
    assert goodput.choose(alone)[1] is Cause.DRAFTS
    shared = alone._replace(price=ALONE._replace(sessions=4))
    k, cause, _ = goodput.choose(shared)
    assert k > 0 and cause is Cause.PROBE
    known = live(goodput, 40, accepted=8, price=shared.price, state=shared)
    assert goodput.choose(known)[1] is Cause.DRAFTS


def test_a_session_drafts_again_as_soon_as_the_price_falls() -> None:
    goodput = controller()
    state = live(goodput, 40, accepted=4)
    full = live(goodput, 3, accepted=4, price=Price(64, 1.0, 0.2), state=state)
    assert goodput.next_k(full) == 0
    assert goodput.next_k(goodput.spent(full, Cost(0, 0, 0, 8, 8.0, 0.0, ALONE))) > 0


def test_rounds_of_a_slow_hour_are_no_reason_against_drafts_in_a_fast_one() -> None:
    goodput = controller()
    busy = Price(1, 2.0, 0.02)
    state = live(goodput, 60, accepted=2, price=busy, away_s=2.4)
    assert goodput.next_k(state) > 0
    idle = live(goodput, 60, accepted=2, away_s=1.2)
    # Nothing was drafted since the machine has its speed back.
    state = state._replace(price=ALONE)
    assert goodput.next_k(state) > 0
    for k in (2, 4, 8):
        assert goodput.seconds(state, k) == pytest.approx(goodput.seconds(idle, k), rel=0.01)


def test_a_losing_session_tries_a_draft_again_and_comes_back() -> None:
    goodput = controller(probe_share=0.02)
    state = live(goodput, 60, accepted=0)
    plain = drafted = 0
    for _ in range(200):
        if goodput.next_k(state):
            drafted += 1
        else:
            plain += 8
        state = live(goodput, 1, accepted=0, state=state)
    # A try takes 1.12 s for one token, which plain decoding makes in 1 s.
    assert drafted > 0 and 0.12 * drafted < 0.02 * plain
    state = live(goodput, 400, accepted=8, state=state)
    assert goodput.next_k(state) == 8


def test_where_rounds_take_longer_than_predicted_plain_decoding_wins() -> None:
    goodput = controller(probe_share=1e-6)
    price = Price(4, 1.0, 0.05)
    assert goodput.next_k(live(goodput, 60, accepted=3, price=price)) > 0
    assert goodput.next_k(live(goodput, 60, accepted=3, price=price, slower=3.0)) == 0


def test_a_restart_pays_only_with_enough_text_ahead() -> None:
    goodput = controller()
    state = live(goodput, 40, accepted=4)
    assert goodput.begin_pays(state, rows=100, opening_s=0.0, tokens_left=200)
    assert not goodput.begin_pays(state, rows=10_000, opening_s=0.0, tokens_left=20)


def test_opening_a_drafters_session_costs_all_that_share_the_verifier() -> None:
    goodput = controller()
    alone, many = (live(goodput, 40, accepted=4, price=Price(n, 1.0, 1e-4)) for n in (1, 16))
    assert goodput.next_k(alone) and goodput.next_k(many)
    assert goodput.begin_pays(alone, rows=0, opening_s=5.0, tokens_left=60)
    assert not goodput.begin_pays(many, rows=0, opening_s=5.0, tokens_left=60)
    assert not goodput.begin_pays(alone, rows=0, opening_s=5.0, tokens_left=3)


def test_a_first_draft_and_one_that_is_tried_wait_for_no_gain() -> None:
    goodput = controller()
    assert goodput.begin_pays(goodput.initial(), rows=0, opening_s=5.0, tokens_left=3)
    never_plain = controller(lengths=(2, 4))
    assert never_plain.begin_pays(never_plain.initial(), rows=0, opening_s=5.0, tokens_left=3)


def test_before_any_price_is_known_it_drafts() -> None:
    goodput = controller()
    assert goodput.next_k(goodput.initial()) == 8


def test_without_0_it_never_stops_drafting() -> None:
    goodput = controller(lengths=(2, 4))
    assert goodput.next_k(live(goodput, 40, accepted=0, price=Price(8, 1.0, 1.0))) == 2


def test_all_positions_are_observed_now_and_then() -> None:
    goodput = controller()
    state, chosen = goodput.initial(), []
    for _ in range(96):
        state = live(goodput, 1, accepted=2, price=Price(1, 1.0, 0.2), state=state)
        chosen.append(goodput.next_k(state))
    assert 1 <= chosen[40:].count(8) <= 2


def test_a_place_that_was_not_asked_for_is_not_counted_as_rejected() -> None:
    goodput = controller()
    state = goodput.initial()
    for _ in range(30):
        state = goodput.update(state, Observation(2, 2, 2, places=(0, 1)))
    assert state.learnt.texts.positions[2:] == ((0.0, 0.0),) * 6
    missed = goodput.update(state, Observation(4, 4, 0))
    assert [reached > 0 for _, reached in missed.learnt.texts.positions] == [True] * 4 + [False] * 4


def test_a_tree_tells_of_smaller_ones_by_the_places_of_its_kept_nodes() -> None:
    goodput = controller()
    state = goodput.initial()
    for _ in range(400):
        # The kept branch of seven nodes is its second, third and sixth.
        state = goodput.update(state, Observation(7, 7, 3, places=(1, 2, 5)))
    tokens = goodput.expected(state)
    assert tokens[:7] == pytest.approx([1, 1, 2, 3, 3, 3, 4], abs=0.15)


def test_where_text_gets_harder_places_that_are_not_asked_for_are_worth_less_too() -> None:
    goodput = controller()
    state = goodput.initial()
    for _ in range(100):
        state = goodput.update(state, Observation(8, 8, 8, places=tuple(range(8))))
    easy = goodput.expected(state)
    for _ in range(100):
        state = goodput.update(state, Observation(2, 2, 1, places=(0,)))
    hard = goodput.expected(state)
    assert hard[8] - hard[2] < 0.8 * (easy[8] - easy[2])


@given(accepted=st.lists(st.integers(0, 8), min_size=30, max_size=60))
def test_more_is_expected_of_longer_blocks(accepted: list[int]) -> None:
    goodput = controller()
    state = goodput.initial()
    for kept in accepted:
        state = goodput.update(state, Observation(8, 8, kept, places=tuple(range(kept))))
    tokens = goodput.expected(state)
    assert tokens == sorted(tokens)
    assert 1.0 == tokens[0] <= tokens[8] <= 9.0


def plain_round(seconds: float, away_s: float, price: Price) -> Cost:
    return Cost(0, 0, 0, 8, seconds, away_s, price)


def test_a_few_slow_plain_rounds_are_forgotten_while_drafts_are_made() -> None:
    """Nobody decodes plainly meanwhile, so nobody would see that it has become fast."""
    goodput = controller(probe_share=1e-6)
    price = Price(8, 1.0, 0.05, drafting=8)
    state = live(goodput, 60, accepted=3, price=price)
    for _ in range(4):
        state = goodput.spent(state, plain_round(40.0, 32.0, price._replace(drafting=0)))
    slow = goodput.seconds(state, 0)
    assert slow > 3.0
    state = live(goodput, 600, accepted=3, price=price, state=state)
    assert goodput.seconds(state, 0) < 0.6 * slow


def test_what_plain_sessions_lose_beside_drafts_is_their_price() -> None:
    goodput = controller()
    alone, beside = Price(8, 1.0, 0.01), Price(8, 1.0, 0.01, drafting=2)
    state = live(goodput, 60, accepted=2, price=beside)
    for _ in range(12):
        state = goodput.spent(state, plain_round(8.0, 0.0, alone))
    assert goodput.next_k(state) > 0
    before = goodput.seconds(state, 4)
    for _ in range(30):
        state = goodput.spent(state, plain_round(16.0, 8.0, beside))
    assert goodput.seconds(state, 4) > 2 * before
    assert goodput.next_k(state) == 0


def test_a_sessions_first_rounds_are_part_of_what_it_costs_to_begin() -> None:
    goodput = controller(probe_share=1e-6)
    state = live(goodput, 60, accepted=8)
    fresh, _ = goodput.resumed(state, ALONE)
    assert goodput.begin_pays(fresh, rows=0, opening_s=0.0, tokens_left=40)
    for _ in range(3):
        cold = Cost(8, 8, 8, 9, 30.0, 28.0, ALONE)
        fresh = goodput.spent(fresh, plain_round(8.0, 0.0, ALONE))
        fresh = goodput.spent(fresh, cold)
    again, _ = goodput.resumed(fresh, ALONE)
    assert not goodput.begin_pays(again, rows=0, opening_s=0.0, tokens_left=40)
    assert goodput.begin_pays(again, rows=0, opening_s=0.0, tokens_left=4000)


def test_what_plain_decoding_earned_pays_for_beginning_again() -> None:
    goodput = controller(probe_share=0.01)
    state = live(goodput, 60, accepted=8)
    assert not goodput.begin_pays(state, rows=0, opening_s=30.0, tokens_left=20)
    for _ in range(800):
        state = goodput.spent(state, plain_round(8.0, 0.0, ALONE))
    assert goodput.begin_pays(state, rows=0, opening_s=30.0, tokens_left=20)


def test_plain_decoding_that_drafts_for_itself_is_as_fast_as_it_is() -> None:
    # Two tokens of a draft are kept, each row costs a tenth of a pass.
    goodput, price = controller(), Price(1, 1.0, 0.1)
    state = live(goodput, 80, accepted=2, price=price)
    assert goodput.next_k(state) == 2
    alone = goodput.seconds(state, 0)
    for _ in range(20):
        # Eight tokens in two passes.
        state = goodput.spent(state, Cost(0, 0, 0, 8, 2.0, 0.0, price, 8, 2))
    assert goodput.seconds(state, 0) < 0.4 * alone
    assert goodput.next_k(state) == 0


def test_a_drafted_round_says_what_plain_decoding_would_have_committed() -> None:
    goodput, price = controller(), Price(1, 1.0, 0.1)
    state = live(goodput, 40, accepted=2, price=price)
    before = goodput.seconds(state, 0)
    same = goodput.spent(state, Cost(2, 2, 2, 3, 1.3, 0.1, price))
    assert goodput.seconds(same, 0) == pytest.approx(before)
    for _ in range(20):
        state = goodput.spent(state, Cost(2, 2, 2, 3, 1.3, 0.1, price, 3, 1))
    assert goodput.seconds(state, 0) < 0.6 * before


def test_another_text_begins_as_an_average_one() -> None:
    goodput = controller()
    state = goodput.spent(goodput.initial(), Cost(0, 0, 0, 8, 2.0, 0.0, ALONE, 8, 2))
    start, _ = goodput.resumed(state, ALONE)
    assert goodput.seconds(state, 0) < goodput.seconds(start, 0) < 1


@pytest.mark.parametrize(
    "texts", [((0.3, 30), (0.3, 30), (0.8, 10)), ((0.4, 8), (0.8, 20)), ((0.5, 20),)]
)
def test_of_an_average_text_as_much_is_expected_as_drafted_rounds_had(
    texts: tuple[tuple[float, int], ...],
) -> None:
    """Whatever share of the rounds those of good texts are: r has no scale of its own."""
    goodput, random = controller(), Random(1)
    shared, tokens, rounds = goodput.initial(), 0, 0
    for session in range(150):
        chance, count = texts[session % len(texts)]
        state, _ = goodput.resumed(shared, ALONE)
        for _ in range(count):
            kept = next(i for i in range(9) if i == 8 or random.random() > chance)
            tokens, rounds = tokens + kept + 1, rounds + 1
            state = goodput.update(state, Observation(8, 8, kept, places=tuple(range(kept))))
        shared = state
    start, _ = goodput.resumed(shared, ALONE)
    assert goodput.expected(start)[8] == pytest.approx(tokens / rounds, rel=0.06)


def test_that_less_is_accepted_than_believed_is_no_fault_of_the_machine() -> None:
    goodput = controller(lengths=(8,))
    state = live(goodput, 30, accepted=0)
    assert state.load.excess == pytest.approx(1.0, abs=0.02)
    state = live(goodput, 200, accepted=0, slower=1.5, state=state)
    assert state.load.excess == pytest.approx(1.5, abs=0.1)


def test_a_text_that_repeats_itself_is_easy_for_any_draft() -> None:
    goodput = controller()
    shared = live(goodput, 40, accepted=2)
    for _ in range(40):
        shared = goodput.spent(shared, Cost(0, 0, 0, 8, 6.0, 0.0, ALONE, 9, 6))
    start, _ = goodput.resumed(shared, ALONE)
    hard = easy = start
    for _ in range(8):
        hard = goodput.spent(hard, Cost(0, 0, 0, 8, 8.0, 0.0, ALONE, 8, 8))
        easy = goodput.spent(easy, Cost(0, 0, 0, 8, 4.0, 0.0, ALONE, 8, 3))
    assert goodput.expected(hard)[8] < goodput.expected(start)[8] < goodput.expected(easy)[8]


def test_rows_of_its_own_drafts_are_part_of_what_a_plain_round_takes() -> None:
    goodput = controller()
    cheap = dear = goodput.initial()
    for _ in range(20):
        cheap = goodput.spent(cheap, Cost(0, 0, 0, 8, 4.0, 0.0, ALONE, 8, 4))
        dear = goodput.spent(dear, Cost(0, 0, 0, 8, 6.0, 0.0, ALONE, 8, 4))
    assert goodput.seconds(cheap, 0) == pytest.approx(0.5, rel=0.1)
    assert goodput.seconds(dear, 0) == pytest.approx(0.75, rel=0.1)


def test_a_plain_round_in_which_others_began_to_draft_says_nothing() -> None:
    goodput = controller()
    alone, beside = Price(8, 1.0, 0.01), Price(8, 1.0, 0.01, drafting=2)
    state = goodput.spent(goodput.initial(), plain_round(8.0, 0.0, alone))
    began = goodput.spent(state, plain_round(80.0, 0.0, beside))
    assert began.load == state.load
    assert goodput.spent(began, plain_round(80.0, 0.0, beside)).load.lost_share > 0.1
