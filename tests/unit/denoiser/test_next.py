"""One step: which slots it fills, with what, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from denoiser_service import compiled_draws
from denoiser_service.compiled_draws import best_draws
from denoiser_service.core.draws import Draws, Step, keyed_noise
from denoiser_service.core.next import Rule, next_state
from foredraft.decoding.block_state import MASKED, fill, hash_state, opened
from foredraft.decoding.prefix import extend_hash
from foredraft.denoising import Dynamic, Static
from foredraft.errors import CorruptModelOutput
from foredraft_kernels.loader import load_kernels

EMPTY = (MASKED,) * 3


def logits(*rows):
    return np.array(rows, np.float32)


EVEN = logits([0, 2, 0], [0, 2, 0], [0, 2, 0])


def test_equal_confidences_fill_the_lowest_slot_and_equal_scores_the_lowest_token():
    assert next_state(EMPTY, EVEN, Rule(Static(1)), 0).state == (1, MASKED, MASKED)
    assert next_state(EMPTY, EVEN, Rule(Static(2)), 0).state == (1, 1, MASKED)
    assert next_state(EMPTY, np.zeros((3, 3), np.float32), Rule(Static(3)), 0).state == (0, 0, 0)
    assert next_state((MASKED, 0, MASKED), EVEN, Rule(Static(5)), 0).state == (1, 0, 1)


def test_dynamic_unmasking_fills_what_is_sure_and_at_least_one():
    sure = logits([0, 9, 0], [0, 0, 1], [9, 0, 0])
    assert next_state(EMPTY, sure, Rule(Dynamic(0.9)), 0).state == (1, MASKED, 0)
    assert next_state(EMPTY, EVEN, Rule(Dynamic(0.9)), 0).state == (1, MASKED, MASKED)


def test_a_step_says_how_sure_it_was_of_what_it_left():
    odds = np.log(np.array([[0.7, 0.2, 0.1], [0.1, 0.5, 0.4], [0.3, 0.3, 0.4]], np.float32))
    for temperature in (0.0, 1.0):
        left = next_state(EMPTY, odds, Rule(Static(1), temperature, 1), 0)
        [slot] = [n for n, token in enumerate(left.state) if token != MASKED]
        rest = np.delete(odds.max(axis=1), slot)
        assert left.surest == pytest.approx(rest.max())
    assert next_state(EMPTY, odds, Rule(Static(3)), 0).surest == -np.inf


def test_confidence_is_that_of_the_drawn_token_whatever_the_temperature():
    """The noise draws slot 0's least likely token, so that slot 2 is filled first."""

    def noise(step, positions, vocab):
        return np.array([[50.0, 0, 0], [0, 0, 0], [0, 0, 0]])

    rows = logits([-5, 5, 0], [0, 0.1, 0], [0, 0, 1])
    assert next_state(EMPTY, rows, Rule(Static(1), 1.0, 0, Draws(noise)), 0).state == (
        MASKED,
        MASKED,
        2,
    )


def test_what_has_no_probability_is_never_drawn():
    rows = logits(*[[-np.inf, 0, -np.inf]] * 3)
    for seed in range(50):
        assert next_state(EMPTY, rows, Rule(Static(3), 2.0, seed), 0).state == (1, 1, 1)


def test_noise_depends_on_seed_position_and_filled_slots():
    at = np.array([5, 6])
    own = keyed_noise(Step(1.0, 3, 1), at, 4)
    assert own.shape == (2, 4) and not np.isin(own[0], own[1]).any()
    for seed, filled, places in ((4, 1, at), (3, 2, at), (3, 1, at + 2)):
        other = keyed_noise(Step(1.0, seed, filled), places, 4)
        assert not np.isin(other, own).any()
    assert np.array_equal(keyed_noise(Step(1.0, 3, 1), at[1:], 4), own[1:])


def wide_logits(rng, scale=3.0, vocab=700):
    rows = rng.normal(0, scale, (8, vocab)).astype(np.float32)
    rows[:, rng.integers(0, vocab, vocab // 3)] = -np.inf
    rows[:, 0] = 1
    return rows


@pytest.mark.parametrize("temperature", [0.0, 0.3, 1.0, 2.0])
def test_compiled_draws_are_those_of_the_reference(temperature):
    rng, draws = np.random.default_rng(7), best_draws()
    for seed in range(50):
        rows = wide_logits(rng)
        step = Step(temperature, seed - 25, seed % 8) if temperature else None
        slots = sorted(rng.choice(8, 1 + seed % 8, replace=False).tolist())
        found, exact = (each.draw(rows, slots, step, 40) for each in (draws, Draws()))
        assert found.tokens == exact.tokens
        assert found.confidence == pytest.approx(exact.confidence, abs=1e-5)
        positions = 40 + np.array(slots)
        likeliest = draws.likeliest(rows[slots], step, positions, 5)
        assert likeliest == Draws().likeliest(rows[slots], step, positions, 5)
        assert [each[0] for each in likeliest] == found.tokens


@pytest.mark.skipif(load_kernels() is None, reason="not built")
def test_near_ties_between_tokens_are_left_to_the_reference(monkeypatch):
    """The noise of two tokens may differ by less than two ways to compute it do."""
    rows, step = wide_logits(np.random.default_rng(1)), Step(1.0, 5, 2)
    exact = Draws().draw(rows, [1, 4], step, 8)
    asked = []

    def scores(self, logits, step, positions):
        asked.append(positions.tolist())
        return keyed_noise(step, positions, logits.shape[1]) + logits - logits.max()

    monkeypatch.setattr(Draws, "scores", scores)
    assert best_draws().draw(rows, [1, 4], step, 8).tokens == exact.tokens and not asked
    monkeypatch.setattr(compiled_draws, "SURE_LEAD", np.inf)
    found = best_draws().draw(rows, [1, 4], step, 8)
    assert found.tokens == exact.tokens and asked == [[9], [12]]
    assert found.confidence == pytest.approx(exact.confidence, abs=1e-5)


@pytest.mark.parametrize("vocab", [1, 15, 16, 700, 4111])
def test_compiled_sums_are_within_their_bound(vocab):
    rng, draws = np.random.default_rng(vocab), best_draws()
    for scale in (0.1, 3, 30):
        rows = wide_logits(rng, scale, vocab)
        found, exact = (each.draw(rows, [0, 2, 7], None, 0) for each in (draws, Draws()))
        for ours, theirs in ((found.normalisers, exact.normalisers), (found.peaks, exact.peaks)):
            assert np.abs(ours - theirs).max() <= max(found.error, 1e-12)
        assert not found.normalisers[[1, 3, 4, 5, 6]].any()
        apart = np.asfortranarray(rows)
        assert draws.draw(apart, [0, 2, 7], None, 0).tokens == found.tokens


@pytest.mark.parametrize("unmasking", [Static(1), Static(2), Dynamic(0.5)])
def test_sums_that_err_choose_the_same_rows(unmasking):
    """Rows so close to each other, or to the threshold, that the error decides between them."""

    class Erring(Draws):
        def draw(self, *given):
            exact = super().draw(*given)
            wrong = np.add(exact.confidence, rng.uniform(-1e-3, 1e-3, len(exact.tokens)))
            return exact._replace(confidence=wrong.tolist(), error=1e-3)

    rng = np.random.default_rng(3)
    for _ in range(300):
        odds = (0.5 + rng.uniform(-1e-3, 1e-3, 3)).tolist()
        rows = logits(*[np.log([p, 1 - p, 1e-9]) for p in odds])
        exact = next_state(EMPTY, rows, Rule(unmasking), 0)
        found = next_state(EMPTY, rows, Rule(unmasking, draws=Erring()), 0)
        assert found.state == exact.state


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_compiled_draws_refuse_numbers_that_are_not_finite(bad):
    rows = np.zeros((2, 40), np.float32)
    for place in (0, 33, 39):
        wrong = rows.copy()
        wrong[1, place] = bad
        with pytest.raises(CorruptModelOutput, match="finite"):
            best_draws().draw(wrong, [0, 1], None, 0)
        best_draws().draw(wrong, [0], None, 0)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_numbers_that_are_not_finite_are_refused(bad):
    rows = EVEN.copy()
    rows[1, 1] = bad
    with pytest.raises(CorruptModelOutput, match="finite"):
        next_state(EMPTY, rows, Rule(Static(1)), 0)
    assert next_state((MASKED, 0, MASKED), rows, Rule(Static(1)), 0).state == (1, 0, MASKED)


def test_what_cannot_be_a_step_is_refused():
    with pytest.raises(ValueError, match="full"):
        next_state((1, 1, 1), EVEN, Rule(Static(1)), 0)
    with pytest.raises(CorruptModelOutput, match="shape"):
        next_state(EMPTY, EVEN[:2], Rule(Static(1)), 0)
    for field, make in {
        "per_step": lambda: Static(0),
        "threshold": lambda: Dynamic(1.0),
        "temperature": lambda: Rule(Static(1), -0.1),
    }.items():
        with pytest.raises(ValueError, match=field):
            make()
    with pytest.raises(ValueError, match="given"):
        opened((1, 2, 3, 4), 3)
    with pytest.raises(ValueError, match="slot 0"):
        fill((1, MASKED), {0: 2})


def test_a_hash_names_prefix_block_slots_and_tokens():
    states = [EMPTY, (1, MASKED, MASKED), (MASKED, 1, MASKED), (2, MASKED, MASKED), (1, 1, MASKED)]
    hashes = {hash_state(h, block, s) for h in (7, 8) for block in (0, 1) for s in states}
    assert len(hashes) == 4 * len(states)
    assert hash_state(7, 0, EMPTY) not in {extend_hash(7, tokens) for tokens in ([], [0], [1])}
