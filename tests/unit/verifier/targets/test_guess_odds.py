"""How often guesses are right, by source and rank."""

from __future__ import annotations

import numpy as np
import pytest

from verifier_service.targets.guess_odds import FOLLOWER, MOST_GUESSES, GuessOdds, kind


def test_ranks_are_alike_in_powers_of_two():
    kinds = [kind(1, rank) for rank in (0, 1, 2, 3, 4, 7, 8, 127)]
    assert kinds == [8, 9, 10, 10, 11, 11, 12, 15]
    assert kind(2, 0) == 16 and kind(FOLLOWER, 0) == 0


def test_at_first_every_guess_has_a_fair_chance_and_better_ranks_a_better_one():
    chances = GuessOdds().ranked(1, 64)
    assert chances[0] == 0.5 and list(chances) == sorted(chances, reverse=True)
    assert len(chances) == 64 and len(GuessOdds().ranked(1, 999)) == MOST_GUESSES


def test_the_estimates_come_to_the_true_shares():
    rng, odds = np.random.default_rng(0), GuessOdds()
    shares = np.array([0.3, 0.2, 0.1, 0.1, 0.02, 0.02, 0.02, 0.02])
    for _ in range(4000):
        drawn = int(rng.choice(9, p=[*shares, 1 - shares.sum()]))
        odds.learn(1, 8, drawn if drawn < 8 else None)
    assert odds.ranked(1, 8) == pytest.approx(shares, abs=0.03)
    assert odds.ranked(2, 1) == [0.5]


def test_a_session_begins_with_what_is_known_and_goes_its_own_way():
    known = GuessOdds()
    for _ in range(200):
        known.learn(FOLLOWER, 1, 0)
    odds = GuessOdds(known)
    assert odds.ranked(FOLLOWER, 1) == known.ranked(FOLLOWER, 1) and odds.ranked(1, 1) == [0.5]
    for _ in range(50):
        odds.learn(FOLLOWER, 1, None)
    assert odds.ranked(FOLLOWER, 1)[0] == pytest.approx(0.5, abs=0.02)
    assert known.ranked(FOLLOWER, 1)[0] > 0.95


def test_what_was_long_ago_weighs_less():
    odds = GuessOdds()
    for right in (0, None):
        for _ in range(4000):
            odds.learn(1, 1, right)
    assert odds.ranked(1, 1)[0] < 0.25
