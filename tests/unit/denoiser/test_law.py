"""The law of vanilla decoding with keyed noise, against fresh draws in every step."""

from __future__ import annotations

from collections import Counter
from itertools import product

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from denoiser_service.core.draws import Draws, Step, keyed_noise
from denoiser_service.core.next import Rule, next_state
from foredraft.decoding.block_state import MASKED, is_full
from foredraft.denoising import Dynamic, Static
from foredraft.noise.gumbel import gumbel_torch
from foredraft.noise.streams import DENOISE, stream_key, substream
from tests.support.denoiser.tabular import SLOTS, VOCAB, Tabular

TRIALS = 100_000
ALPHA = 1e-4
MODEL = Tabular(seed=5, spread=1.2)
SETTINGS = pytest.mark.parametrize(
    ("unmasking", "temperature"), [(Static(1), 1.0), (Static(1), 0.6), (Dynamic(0.6), 1.0)]
)


@pytest.fixture(scope="module")
def noise():
    """The keyed noise of all seeds, [seed, filled, slot, token], at once."""
    keys = [
        [[stream_key(substream(seed, DENOISE, c), n) for n in range(SLOTS)] for c in range(SLOTS)]
        for seed in range(TRIALS)
    ]
    return gumbel_torch(torch.tensor(keys)[..., None], torch.arange(VOCAB)).numpy()


def law(unmasking, temperature, state=(MASKED,) * SLOTS):
    """The probability of every full block, by enumerating all fresh draws of every step."""
    if MASKED not in state:
        return Counter({state: 1.0})
    logits = MODEL.logits((), state).astype(np.float64)
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    drawn_from = p ** (1 / temperature) / (p ** (1 / temperature)).sum(1, keepdims=True)
    masked = [slot for slot in range(SLOTS) if state[slot] == MASKED]
    found: Counter = Counter()
    for tokens in product(range(VOCAB), repeat=len(masked)):
        draw = dict(zip(masked, tokens, strict=True))
        ordered = sorted(masked, key=lambda slot: (-p[slot, draw[slot]], slot))
        if isinstance(unmasking, Static):
            chosen = ordered[: unmasking.per_step]
        else:
            sure = [slot for slot in ordered if p[slot, draw[slot]] > unmasking.threshold]
            chosen = sure or ordered[:1]
        after = tuple(draw[s] if s in chosen else state[s] for s in range(SLOTS))
        chance = np.prod([drawn_from[slot, token] for slot, token in draw.items()])
        for block, share in law(unmasking, temperature, after).items():
            found[block] += chance * share
    return found


def p_value(unmasking, temperature, noise):
    """Chi-square of 100,000 seeds' blocks, with noise(seed, filled) -> [slots, V]."""
    table = {}
    found: Counter = Counter()
    draws = Draws(lambda step, at, _: noise(step.seed, step.filled)[at])
    for seed in range(TRIALS):
        rule = Rule(unmasking, temperature, seed, draws)
        state = (MASKED,) * SLOTS
        while not is_full(state):
            if state not in table:
                table[state] = MODEL.logits((), state)
            state = next_state(state, table[state], rule, 0).state
        found[state] += 1
    exact = law(unmasking, temperature)
    blocks = sorted(exact, key=exact.get)
    expected = np.array([exact[block] for block in blocks]) * TRIALS
    observed = np.array([found[block] for block in blocks])
    few = max(1, int((np.cumsum(expected) < 20).sum()))
    merged = [np.append(each[few:], each[:few].sum()) for each in (observed, expected)]
    return chisquare(merged[0], merged[1] * merged[0].sum() / merged[1].sum()).pvalue


def test_the_table_of_noise_is_the_keyed_noise(noise):
    for seed, filled in product((0, 17, TRIALS - 1), range(SLOTS)):
        own = keyed_noise(Step(1.0, seed, filled), np.arange(SLOTS), VOCAB)
        assert np.array_equal(own, noise[seed, filled])


@pytest.mark.slow
@SETTINGS
def test_keyed_noise_gives_the_law_of_fresh_draws(unmasking, temperature, noise):
    assert p_value(unmasking, temperature, lambda seed, filled: noise[seed, filled]) > ALPHA


@pytest.mark.slow
def test_noise_by_position_alone_is_seen(noise):
    """What is not filled is drawn again with the noise that left it out."""
    assert p_value(Static(1), 1.0, lambda seed, _: noise[seed, 0]) < ALPHA
