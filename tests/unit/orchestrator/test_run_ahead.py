"""Predicted outcomes, the cache they wait in, and the circuit breaker."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from foredraft.decoding.outcomes import Purchases, outcome, outcomes_of, predict, predicts
from foredraft.decoding.prefix import hash_prefix
from foredraft.decoding.tree import branch
from foredraft.messages import ProposeAhead, Round
from foredraft.types import Base, Guess
from orchestrator.breaker import Breaker, BreakerState
from orchestrator.run_ahead import RunAheadGate
from orchestrator.session.drafts import SpeculationCache

PROBABILITY = st.floats(0, 1)


def test_a_guess_predicts_its_branch_and_its_token() -> None:
    asked = Round(Base("s", 4, 2, hash_prefix((1, 2))), (3, 4))
    whole, none = predict(asked, (Guess(1, 5, 0.6), Guess(-1, 9, 0.1)), 2)
    assert (whole.tokens, none.tokens) == ((3, 4, 5), (9,))
    assert whole.base == Base("s", 5, 5, hash_prefix((1, 2, 3, 4, 5)))


def test_guesses_about_a_tree_follow_its_parents() -> None:
    asked = Round(Base("s", 4, 1, hash_prefix((1,))), (3, 9, 4), parents=(-1, -1, 0))
    predicted = predict(asked, (Guess(2, 5, 0.5), Guess(1, 6, 0.2)), 3)
    assert [each.tokens for each in predicted] == [(3, 4, 5), (9, 6)]


def test_tokens_that_are_not_verified_are_guesses_themselves() -> None:
    asked = Round(
        Base("s", 4, 1, hash_prefix((1,))),
        (3, 4, 9, 8),
        parents=(-1, 0, -1, 1),
        expected=(0.9, 0.6, 0.3, 0.2),
    )
    guesses = (Guess(1, 5, 0.25), Guess(3, 6, 0.1), Guess(0, 7, 0.05))
    predicted = predict(asked, guesses, 2)
    # Token 9 in place of 3, a guess of the block, token 8 after both: as many as the block had.
    assert [each.tokens for each in predicted] == [(9,), (3, 4, 5), (3, 4, 8)]
    # Nothing is verified: the outcome is a first token.
    assert [each.tokens for each in predict(asked, guesses, 0)] == [(3,), (9,)]


@given(st.data())
def test_an_outcome_is_predicted_if_it_is_among_the_predictions(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 6))
    parents = tuple(data.draw(st.integers(-1, node - 1)) for node in range(count))
    # Tokens differ by their place.
    draft = tuple(range(10, 10 + count))
    expected = tuple(sorted(data.draw(st.lists(PROBABILITY, min_size=count, max_size=count))))[::-1]
    asked = Round(Base("s", 4, 1, hash_prefix((1,))), draft, parents=parents, expected=expected)
    guess = st.builds(Guess, st.integers(-1, count - 1), st.integers(20, 24), PROBABILITY)
    guesses = tuple(data.draw(st.lists(guess, max_size=4)))
    bought = data.draw(st.integers(0, count))
    end = data.draw(st.integers(-1, bought - 1))
    token = data.draw(st.sampled_from([*draft[bought:], *range(20, 25)]))
    kept = branch(parents, end)
    named = [each.tokens for each in predict(asked, guesses, bought)]
    assert len(named) <= len(guesses)
    happened = (*(draft[node] for node in kept), token)
    assert predicts(asked, guesses, bought, kept, token) == (happened in named)
    for each in predict(asked, guesses, bought):
        assert each == outcome(asked.base, each.tokens)


def test_what_was_left_out_last_is_expected_to_be_left_out() -> None:
    base = Base("s", 4, 1, hash_prefix((1,)))
    asked = Round(base, (3, 4, 5), expected=(0.9, 0.5, 0.3))
    known = Purchases()
    assert known.bought(asked) == 3
    known = known.after(asked, 2)
    assert known.bought(asked) == 2
    assert known.bought(Round(base, (3, 4), expected=(0.4, 0.31))) == 2
    # All of a draft with less likely tokens was verified: so will be others like it.
    known = known.after(Round(base, (3,), expected=(0.2,)), 1)
    assert known.bought(asked) == 3
    # Drafts without estimates are verified whole.
    assert known.after(Round(base, (3, 4)), 2) == known
    assert known.bought(Round(base, (3, 4))) == 2
    assert len(predict(Round(base, (3, 4)), (Guess(1, 5, 0.6),), 1)) == 1


def test_a_request_names_the_same_outcomes_on_both_sides() -> None:
    asked = Round(Base("s", 4, 2, hash_prefix((1, 2))), (3, 4))
    predicted = predict(asked, (Guess(1, 5, 0.6), Guess(0, 7, 0.1)), 2)
    request = ProposeAhead(asked.base, 2, (), 4, tuple(each.tokens for each in predicted))
    assert outcomes_of(request) == predicted


def test_the_cache_holds_the_newest_prefixes() -> None:
    cache: SpeculationCache[str] = SpeculationCache(2)
    for key in (1, 2, 1, 3):
        cache.put(key, f"block {key}")
    assert (cache.get(1), cache.get(2), cache.get(3)) == ("block 1", None, "block 3")
    cache.clear()
    assert (cache.get(1), cache.get(3)) == (None, None)


def test_the_breaker_opens_probes_and_closes() -> None:
    breaker = Breaker(threshold=2, cooldown_s=1.0, max_cooldown_s=3.0)
    breaker = breaker.failed(10.0)
    assert breaker.state(10.0) is BreakerState.CLOSED and breaker.wait_s(10.0) == 0.0
    breaker = breaker.failed(10.0)
    assert breaker.state(10.5) is BreakerState.OPEN and breaker.wait_s(10.5) == 0.5
    assert breaker.state(11.0) is BreakerState.HALF_OPEN
    # A failed probe doubles the pause, up to the cap.
    breaker = breaker.failed(11.0)
    assert breaker.wait_s(11.0) == 2.0
    breaker = breaker.failed(13.0)
    assert breaker.wait_s(13.0) == 3.0
    breaker = breaker.succeeded()
    assert breaker.state(13.0) is BreakerState.CLOSED and breaker.failures == 0
    # A success forgets the failures before it.
    assert breaker.failed(20.0).succeeded().failed(21.0).state(21.0) is BreakerState.CLOSED


def test_the_gate_closes_when_outcomes_are_seldom_predicted_and_opens_again() -> None:
    gate = RunAheadGate(min_hit_rate=0.25, rho=0.5, start=0.5)
    hit_rate, seen = gate.start, []
    for predicted in (False, False, True, True, True):
        hit_rate = gate.update(hit_rate, predicted)
        seen.append(gate.is_open(hit_rate))
    # Hit rates: 0.25, 0.125, 0.5625, ...
    assert seen == [True, False, True, True, True]


def test_a_gate_of_zero_is_always_open() -> None:
    gate = RunAheadGate(min_hit_rate=0.0)
    assert gate.is_open(gate.update(0.0, False))
