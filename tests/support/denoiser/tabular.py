"""Diffusion models that are tables: random logits for every prefix and state."""

from __future__ import annotations

import numpy as np

from denoiser_service.core.decode import speculative
from denoiser_service.core.port import Guess
from denoiser_service.core.text import Text
from foredraft.decoding.block_state import MASKED

VOCAB, SLOTS = 3, 3
TEXT = Text(prompt=(1, 0, 2, 1), max_tokens=7)
"""A prompt that ends inside a block, and two more blocks."""


class Tabular:
    """Logits [3, 3] drawn once for each prefix and state, by a seed; counts what it is asked."""

    vocab = VOCAB
    block_length = SLOTS

    def __init__(self, seed=0, spread=2.0):
        self._seed, self._spread = seed, spread
        self.calls = []

    def logits(self, prefix, state):
        """The table's entry."""
        key = [self._seed, len(prefix), *prefix, *(token - MASKED for token in state)]
        return np.random.default_rng(key).normal(0, self._spread, (SLOTS, VOCAB)).astype(np.float32)

    def evaluate(self, prefix, states):
        self.calls.append(list(states))
        return [self.logits(prefix, state) for state in states]


class OfTheParent(Tabular):
    """A draft gets the logits of the state that it was drafted from."""

    def evaluate(self, prefix, states):
        return [super().evaluate(prefix, states)[0]] * len(states)


class SeeingEachOther(Tabular):
    """Copies of a block attend to each other: a state's logits depend on its neighbours."""

    def evaluate(self, prefix, states):
        found = super().evaluate(prefix, states)
        return [each + 0.5 * (sum(found) - each) for each in found]


class Scripted:
    """Prefers given tokens in a given order of slots, block by block, whatever is filled."""

    vocab = 8

    def __init__(self, block_length, tokens, sure=()):
        self.block_length = block_length
        self._tokens, self._sure = tokens, set(sure)

    def evaluate(self, prefix, states):
        logits = np.zeros((self.block_length, self.vocab), np.float32)
        for slot, token in enumerate(self._tokens):
            logits[slot, token] = 20 if slot in self._sure else 3 - 0.1 * slot
        return [logits] * len(states)


def hostile(random):
    """Drafts that are wrong in every way, and now and then right by chance."""

    def drafts(anchor):
        state = anchor.state
        right = []
        for _ in range(random.integers(12)):
            guess, left = random.integers(VOCAB, size=SLOTS).tolist(), random.random(SLOTS) < 0.5
            filled = zip(state, guess, left, strict=True)
            right.append(tuple(new if t == MASKED and not out else t for t, new, out in filled))
        wrong = [
            (), state, state * 2, (7,) * SLOTS, (-5,) * SLOTS, (MASKED,) * SLOTS,
            tuple(int(t) for t in random.integers(-1, VOCAB, SLOTS)),
        ]  # fmt: skip
        found = [*right, *right, *wrong]
        random.shuffle(found)
        return [Guess(state, random.random()) for state in found]

    return drafts


def all_successors(anchor):
    """Every state that holds the anchor's, the full ones among them."""
    states = [anchor.state]
    for slot, token in enumerate(anchor.state):
        if token == MASKED:
            states += [(*s[:slot], v, *s[slot + 1 :]) for s in states for v in range(VOCAB)]
    return [Guess(state) for state in states]


def states_of(denoiser, rule, drafting, text=TEXT):
    """The states of every block, with drafts."""
    return [block.states for block in speculative(denoiser, text, rule, drafting).blocks]
