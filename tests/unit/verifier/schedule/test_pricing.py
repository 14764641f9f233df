"""Rows are bought while a pass's expected tokens per second rise, and priced by what they cost."""

from __future__ import annotations

import random
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foredraft.types import NO_PRICE
from tests.support.examples import examples
from verifier_service.schedule.calibration import Calibration
from verifier_service.schedule.costs import Pass, PassCosts
from verifier_service.schedule.pricing import Offer, Priced, Unpriced

FLAT = PassCosts((1, 8, 64), (1.0, 1.0, 8.0))


def offer(key: int, *expected: float, rows: int = 1) -> Offer:
    """Return a draft of which each token takes so many rows."""
    return Offer(key, expected, (rows,) * len(expected))


def test_rows_that_cost_nothing_are_all_bought() -> None:
    assert Priced(FLAT).buy([offer(1, 0.5, 0.1, 0.01)], rows=1, rounds=1) == [3]


def test_of_several_sessions_the_likeliest_tokens_are_bought() -> None:
    # Beyond eight rows each costs 1/8 s, and a pass without drafts makes 6 tokens in 1 s.
    offers = [offer(1, 0.9, 0.8, 0.1), offer(2, 0.95, 0.2, 0.1), offer(3, 0.1)]
    assert Priced(FLAT).buy(offers, rows=8, rounds=6) == [2, 1, 0]


def test_nothing_is_bought_where_rows_cost_more_than_they_bring() -> None:
    offers = [offer(key, 0.9, 0.8) for key in range(32)]
    assert Priced(FLAT).buy(offers, rows=32, rounds=32) == [0] * 32


def test_tokens_that_take_two_rows_cost_two() -> None:
    # Eight rows cost what one does; the ninth and each after it 1/8 of that.
    four = [0.2] * 4
    assert Priced(FLAT).buy([offer(1, *four)], rows=1, rounds=1) == [4]
    assert Priced(FLAT).buy([offer(1, *four, rows=2)], rows=1, rounds=1) == [3]


def test_what_a_draft_costs_beside_its_rows_is_paid_once_and_only_by_those_who_buy() -> None:
    cheap, dear = offer(1, 0.5, 0.4), offer(2, 0.6, 0.5)._replace(beside_s=0.9)
    pricing = Priced(FLAT)
    assert pricing.buy([dear], rows=1, rounds=1) == [2]
    assert pricing.buy([dear._replace(beside_s=1.2)], rows=1, rounds=1) == [0]
    assert pricing.buy([cheap, dear._replace(beside_s=0.2)], rows=2, rounds=2) == [2, 2]
    assert pricing.buy([cheap, dear._replace(beside_s=3.0)], rows=2, rounds=2) == [2, 0]


def test_of_equal_tokens_those_of_fewer_rows_are_bought() -> None:
    # Two rows more cost nothing.
    whole, half = offer(1, 0.6, rows=2), offer(2, 0.5)
    assert Priced(FLAT).buy([whole, half], rows=7, rounds=6) == [0, 1]


@given(st.data())
def test_a_dear_offer_hides_no_other(data: st.DataObject) -> None:
    """What is bought brings at least as many tokens per second as without any one of the offers."""
    costs = PassCosts((1, 100), (data.draw(st.floats(0.1, 3.0)), 20.0))
    offers = []
    for key in range(data.draw(st.integers(2, 5))):
        expected = data.draw(masses)
        rows = data.draw(st.lists(st.integers(1, 3), min_size=len(expected), max_size=4))
        beside_s = data.draw(st.sampled_from([0.0, 0.2, 2.0]))
        offers.append(Offer(key, expected, rows[: len(expected)], beside_s))

    def rate(some: list[Offer]) -> float:
        counts = Priced(costs).buy(some, rows=4, rounds=4)
        bought = list(zip(some, counts, strict=True))
        seconds = costs.seconds(4 + sum(sum(each.rows[:n]) for each, n in bought))
        seconds += sum(each.beside_s for each, n in bought if n)
        return (4 + sum(sum(each.expected[:n]) for each, n in bought)) / seconds

    for each in offers:
        assert rate(offers) >= rate([other for other in offers if other is not each]) - 1e-9


def test_while_passes_wait_for_drafts_more_is_bought() -> None:
    pricing = Priced(PassCosts((1, 2, 3, 4), (1.0, 1.4, 1.8, 2.2)))
    offers = [offer(1, 0.6, 0.4, 0.25)]
    assert pricing.buy(offers, rows=1, rounds=1) == [1]
    for _ in range(100):
        pricing.passed(Pass(1, 0, 1.0), idle_s=0.9)
    assert pricing.buy(offers, rows=1, rounds=1) == [2]


def best_by_hand(offers: list[tuple[float, ...]], rows: int, costs: PassCosts) -> float:
    """Return the most tokens per second of all purchases of first tokens."""
    found = 0.0
    for counts in product(*(range(len(offer) + 1) for offer in offers)):
        tokens = len(offers) + sum(sum(offer[:n]) for offer, n in zip(offers, counts, strict=True))
        found = max(found, tokens / costs.seconds(rows + sum(counts)))
    return found


masses = st.lists(st.floats(0.01, 1.0), min_size=1, max_size=4).map(
    lambda each: tuple(sorted(each, reverse=True))
)


@given(st.lists(masses, min_size=1, max_size=4), st.lists(st.floats(0.0, 0.5), min_size=4))
def test_no_other_purchase_has_more_tokens_per_second_unless_it_is_hardly_worth_it(
    offers: list[tuple[float, ...]], steps: list[float]
) -> None:
    seconds = [1.0]
    for step in steps:
        seconds.append(seconds[-1] + step)
    costs = PassCosts(range(1, len(seconds) + 1), seconds)
    rows = len(offers)
    counts = Priced(costs).buy([offer(i, *each) for i, each in enumerate(offers)], rows, rows)
    tokens = rows + sum(sum(offer[:n]) for offer, n in zip(offers, counts, strict=True))
    got, best = tokens / costs.seconds(rows + sum(counts)), best_by_hand(offers, rows, costs)
    if sum(counts):
        assert got == pytest.approx(best)
    else:
        assert got >= best / 1.03 - 1e-9


def test_drafts_are_no_cheaper_where_prompts_are_read_meanwhile() -> None:
    linear = PassCosts((1, 1000), (1.1, 101.0))
    offers = [offer(i, 0.9, 0.3, 0.2, 0.1) for i in range(4)]
    bought = Priced(linear).buy(offers, rows=4, rounds=4)
    assert bought == [1] * 4
    assert Priced(linear).buy(offers, rows=4, rounds=4, prefill=60) == bought
    assert Priced(linear).buy(offers[:1], rows=1, rounds=1, prefill=60) == [3]
    # By the time of the whole pass more would be.
    assert Priced(linear).buy(offers, rows=64, rounds=4) == [3] * 4


def test_a_row_costs_what_it_does_where_every_session_drafts() -> None:
    price = Priced(FLAT).price(sessions=4, context=100)
    assert (price.sessions, price.pass_s) == (4, 1.0)
    # From 4 rows to 36, of which the first four cost nothing.
    assert price.row_s == pytest.approx((28 / 8) / 32)
    assert price.draft_s == 0
    assert Priced(FLAT).price(sessions=1, context=0).row_s == pytest.approx((1 / 8) / 8)


def test_without_prices_everything_is_bought() -> None:
    assert Unpriced().buy([offer(1, 0.1), offer(2)], rows=2, rounds=2) == [1, 0]
    assert Unpriced().price(4, 100) == NO_PRICE


def test_costs_between_and_beyond_the_measured_rows() -> None:
    costs = PassCosts((1, 9), (1.0, 3.0), context_s=0.01)
    assert costs.seconds(5) == pytest.approx(2.0)
    assert costs.seconds(13) == pytest.approx(4.0)
    assert costs.seconds(1, context=50) == pytest.approx(1.5)
    assert costs.row_s(1, 8) == pytest.approx(0.25)


def test_each_further_session_has_a_cost_of_its_own() -> None:
    costs = PassCosts((1, 9), (1.0, 3.0), session_s=0.5)
    assert costs.seconds(9, sessions=3) == pytest.approx(4.0)
    for _ in range(200):
        costs.observe(Pass(9, 0, 4.0, sessions=3))
    assert costs.seconds(9) == pytest.approx(3.0)
    for _ in range(400):
        costs.observe(Pass(9, 0, 3.4, beside_drafts=True, drafted=1, sessions=1))
    assert costs.draft_s == pytest.approx(0.4, rel=0.1)


def test_a_draft_may_cost_more_than_a_pass_but_no_pause_is_its_cost() -> None:
    costs = PassCosts((1, 9), (1.0, 3.0))
    for _ in range(400):
        costs.observe(Pass(1, 0, 3.0, beside_drafts=True, drafted=1))
    assert costs.draft_s == pytest.approx(2.0, rel=0.1)
    costs.observe(Pass(1, 0, 1000.0, beside_drafts=True, drafted=1))
    assert costs.draft_s == pytest.approx(2.0, rel=0.1)


@examples(50)
@given(seed=st.integers(0, 10**6), alone=st.floats(0, 1))
def test_whatever_passes_take_a_price_stays_within_what_they_took(seed: int, alone: float) -> None:
    chance, costs = random.Random(seed), PassCosts((1, 9, 33), (1.0, 2.0, 5.0))
    for _ in range(1000):
        rows = chance.randint(1, 40)
        seconds = (1 + 0.1 * rows) * chance.choice([0.5, 1.0, 1.0, 1.0, 2.0, 5.0, 50.0])
        drafted, beside = chance.randint(0, 2), chance.random() < 0.9
        costs.observe(Pass(rows, 0, seconds, beside, drafted, 1, chance.random() < alone))
        assert 0.2 < costs.seconds(9) < 50 and 0 <= costs.draft_s < 200


def test_costs_follow_a_machine_that_becomes_slower() -> None:
    costs = PassCosts((1, 9, 17), (1.0, 3.0, 5.0))
    for _ in range(200):
        costs.observe(Pass(9, 0, 6.0))
    assert costs.seconds(9) == pytest.approx(6.0, rel=0.05)
    # What was not observed is taken to have become slower, too.
    assert costs.seconds(17) > 7.0


def test_one_interruption_is_not_a_cost() -> None:
    costs = PassCosts((1, 9), (1.0, 3.0))
    costs.observe(Pass(9, 0, 1000.0))
    assert costs.seconds(9) < 3.3


def test_what_passes_lose_beside_drafts_is_the_drafts_cost() -> None:
    costs = PassCosts((1, 9), (1.0, 3.0))
    for _ in range(400):
        costs.observe(Pass(9, 0, 3.5, beside_drafts=True, drafted=1))
    assert costs.draft_s == pytest.approx(0.5, rel=0.1)
    assert costs.seconds(9) == pytest.approx(3.0)


@pytest.mark.parametrize(("alone", "slower"), [(True, 1.3), (False, 1.0)])
def test_a_session_that_drafts_alone_sees_a_machine_become_slower(
    alone: bool, slower: float
) -> None:
    costs = PassCosts((1, 9), (1.0, 3.0))
    for _ in range(400):
        costs.observe(Pass(9, 0, 3.3, beside_drafts=True, drafted=1, alone=alone))
    # The mean cost of drafts is found before the machine is thought to be slower.
    assert costs.seconds(9) == pytest.approx(3.0, rel=0.03)
    for _ in range(200):
        costs.observe(Pass(9, 0, 1.5 * 3.3, beside_drafts=True, drafted=1, alone=alone))
    assert costs.seconds(9) / 3.0 >= slower
    assert (costs.seconds(9) > 3.0) == alone


def test_drafts_do_not_make_passes_shorter() -> None:
    costs = PassCosts((1, 9), (3.0, 9.0))
    for _ in range(400):
        costs.observe(Pass(9, 0, 3.0, beside_drafts=True, drafted=1))
    assert costs.seconds(9) < 3.9
    assert costs.draft_s == 0


def test_a_noisy_measurement_never_makes_more_rows_cheaper() -> None:
    costs = PassCosts((1, 4, 9), (1.0, 3.0, 2.0))
    assert costs.seconds(4) == costs.seconds(9) == 2.0
    assert costs.row_s(4, 8) >= 0


def test_estimates_are_scaled_by_what_came_of_them() -> None:
    calibration = Calibration()
    assert calibration.scale == 1.0
    for _ in range(200):
        calibration = calibration.after((0.8, 0.7), accepted=1)
    assert calibration.scale == pytest.approx(1 / 1.5, rel=0.05)
    assert calibration.after((), accepted=0) == calibration


def test_a_slower_machine_is_slower_for_texts_and_sessions_too() -> None:
    costs = PassCosts((1, 9), (1.0, 3.0), context_s=0.01, session_s=0.1)
    for _ in range(300):
        costs.observe(Pass(9, 100, 8.4, sessions=3))
    assert costs.seconds(9, context=100, sessions=3) == pytest.approx(8.4, rel=0.02)
    assert costs.beside_rows_s(100, 3) == pytest.approx(2 * 1.2, rel=0.05)
