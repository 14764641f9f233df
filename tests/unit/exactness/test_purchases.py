"""Which draft tokens the verifier buys changes no token, under every rule, however it chooses.

Under `coupled` whole texts are compared, for every proposal; the other rules' drafts are never
split. A purchase by the sampled tokens themselves must be seen by the test of the law.
"""

import random

import numpy as np
import pytest

from foredraft.decoding.prefix import hash_prefix
from foredraft.messages import Round, Verdict, VerifyOpen
from foredraft.types import Acceptance, Base
from tests.support.law.exactness import (
    ALPHA,
    DRAWS,
    FIRST,
    LENGTH,
    PROMPT,
    Group,
    Setting,
    p_value,
    play,
)
from tests.support.law.small_drafter import argmax, sampled, with_shared_noise
from tests.support.law.tabular_model import TabularModel
from tests.support.verifiers import make_engine
from verifier_service.schedule.costs import PassCosts
from verifier_service.schedule.pricing import Priced, Unpriced

SETTING = Setting(0.7, 0.8)
SEEDS = 400
DEAR = PassCosts((1, 2, 3, 4, 5), (1.0, 1.7, 2.7, 3.7, 4.7))


class Random(Unpriced):
    """Buys any number of tokens."""

    def __init__(self):
        self._random = random.Random(3)

    def buy(self, offers, rows, rounds, prefill=0):
        return [self._random.randint(0, len(offer.expected)) for offer in offers]


class Nothing(Unpriced):
    """Buys nothing."""

    def buy(self, offers, rows, rounds, prefill=0):
        return [0 for _ in offers]


class Miser(Unpriced):
    """Buys all but the last token: the likeliest continuation is never verified whole."""

    def buy(self, offers, rows, rounds, prefill=0):
        return [max(0, len(offer.expected) - 1) for offer in offers]


PURCHASES = {
    "random": Random,
    "nothing": Nothing,
    "all but the last": Miser,
    "priced": lambda: Priced(DEAR),
}
DRAFTS = {
    "argmax": lambda: argmax,
    "coupled": lambda: with_shared_noise("coupled", SETTING, SEEDS),
    "tree": lambda: with_shared_noise("tree", SETTING, SEEDS),
}


def text_of(engine, drafts, seed, acceptance):
    """Decode one session, each draft offered with falling estimates; return text and left out."""
    text, left_out = list(PROMPT), 0
    asked = VerifyOpen("s", PROMPT, SETTING.params(seed), 10, 8, acceptance=acceptance)
    handle = engine.open(asked)
    while engine.has_work:
        engine.step()  # A draft that comes with the prompt's own pass is verified whole.
    while len(text) < FIRST + LENGTH:
        groups = drafts(tuple(text[FIRST:]), np.array([seed])) if drafts else []
        mine = [group for group in groups if seed in group.seeds]
        _, tokens, q, parents = mine[0] if mine else (None, (), (), ())
        base = Base("s", len(text), len(text), hash_prefix(text))
        expected = tuple(0.8 ** (1 + i) for i in range(len(tokens)))
        engine.submit(handle, Round(base, tokens, 1, parents, q, expected))
        (outcome,) = engine.step() or engine.step() or engine.step()
        assert isinstance(outcome.result, Verdict), outcome
        left_out += outcome.result.left_out
        text += [*(tokens[i] for i in outcome.result.kept), *outcome.result.next_tokens]
    engine.close(handle)
    return text, left_out


@pytest.mark.parametrize("purchase", PURCHASES)
@pytest.mark.parametrize("proposal", DRAFTS)
def test_under_coupled_every_purchase_gives_the_text_of_plain_decoding(proposal, purchase):
    model, drafts = TabularModel(), DRAFTS[proposal]()
    engine = make_engine(model, pricing=PURCHASES[purchase]())
    left_out = 0
    for seed in range(0, SEEDS, 4):
        plain, _ = text_of(make_engine(model), None, seed, Acceptance.COUPLED)
        bought, skipped = text_of(engine, drafts, seed, Acceptance.COUPLED)
        assert bought == plain
        left_out += skipped
    assert left_out > 0


@pytest.mark.parametrize("acceptance", [Acceptance.REJECTION, Acceptance.BLOCK])
def test_the_other_rules_verify_a_sampled_path_whole(acceptance):
    engine = make_engine(TabularModel(), pricing=Nothing())
    drafts = sampled(SETTING)
    assert all(text_of(engine, drafts, seed, acceptance)[1] == 0 for seed in range(0, DRAWS, 4000))


@pytest.mark.parametrize("acceptance", [Acceptance.REJECTION, Acceptance.BLOCK])
def test_a_purchase_by_the_sampled_tokens_is_seen(acceptance):
    """Drafts that begin with an unlikely token are not bought: plain rounds in their place."""
    drafts = sampled(SETTING)

    def bought(prefix, seeds):
        groups = list(drafts(prefix, seeds))
        if not any(group.tokens for group in groups):
            return groups
        common = max({group.tokens[0] for group in groups}, key=lambda t: _share(groups, t))
        return [group if group.tokens[0] == common else Group(group.seeds, ()) for group in groups]

    texts, _ = play(bought, acceptance, SETTING)
    assert p_value(texts, SETTING) < ALPHA


def _share(groups, token):
    return sum(len(group.seeds) for group in groups if group.tokens[0] == token)
