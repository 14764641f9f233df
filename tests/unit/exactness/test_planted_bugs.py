"""Bugs that speculative decoding has shipped with, or nearly: the grid's test must see each.

Every one of them looks right token by token, and bends the law of the text.
"""

import numpy as np
import pytest

from drafter_service.proposals.proposals import process
from foredraft.types import Acceptance, Candidates
from tests.support.law.exactness import (
    ALPHA,
    Independent,
    Setting,
    p_value,
    play,
    shared,
    uniforms,
)
from tests.support.law.small_drafter import FINE, coarsely, peeking, sampled, searched

SETTING = Setting(0.7, 0.8)
COIN = 99
"""Random numbers that nothing else is drawn with."""
RULES = pytest.mark.parametrize("acceptance", [Acceptance.REJECTION, Acceptance.BLOCK])


class OneGenerator(Independent):
    """Judges and draws with the noise that drafts are made with."""

    def uniforms(self, group, at):
        """A uniform number from each drafted token's own noise."""
        own = shared()[group.seeds]
        used = [own[:, at + i, token] for i, token in enumerate(group.tokens)]
        return np.exp(-np.exp(-np.stack(used, axis=1)))

    def residual(self, seeds, at, position):
        return shared()[seeds, position]


class SharedPlainRounds(Independent):
    """Draws plain rounds with the shared noise even after a draft."""

    def plain(self, seeds, at):
        return shared()[seeds, at]


@RULES
def test_drafting_and_judging_with_the_same_noise_is_seen(acceptance):
    texts, _ = play(sampled(SETTING, noise=shared()), acceptance, SETTING, OneGenerator())
    assert p_value(texts, SETTING) < ALPHA


@pytest.mark.slow
def test_drafting_the_same_position_twice_with_the_same_noise_is_seen():
    """Whether a block is kept tells of the noise that its later tokens were drawn with."""
    texts, _ = play(sampled(SETTING, noise=shared()), Acceptance.BLOCK, SETTING)
    assert p_value(texts, SETTING) < ALPHA


@RULES
def test_plain_rounds_with_the_noise_of_a_draft_are_seen(acceptance):
    texts, _ = play(peeking(SETTING), acceptance, SETTING, SharedPlainRounds())
    assert p_value(texts, SETTING) < ALPHA


@RULES
def test_a_marginal_for_a_searched_token_is_seen(acceptance):
    texts, _ = play(searched(SETTING), acceptance, SETTING)
    assert p_value(texts, SETTING) < ALPHA


def before_top_p(logits):
    return coarsely(logits / SETTING.temperature, FINE)


@RULES
def test_q_before_top_p_is_seen(acceptance):
    texts, _ = play(sampled(SETTING, tell=before_top_p), acceptance, SETTING)
    assert p_value(texts, SETTING) < ALPHA


def rounded(logits):
    return coarsely(process(logits, SETTING.params()))


@RULES
def test_drawing_before_q_is_rounded_is_seen(acceptance):
    texts, _ = play(sampled(SETTING, tell=rounded), acceptance, SETTING)
    assert p_value(texts, SETTING) < ALPHA


def padded(renormalised):
    """Drafts whose second token is in a quarter of them one that the target does not have.

    They are cut there. What the first was drawn from had such a token, too.
    """
    whole = sampled(SETTING)

    def drafts(prefix, seeds):
        for group in whole(prefix, seeds):
            if not group.tokens:
                yield group
                continue
            q = group.q if renormalised else tuple(map(with_the_unknown_share, group.q))
            known = uniforms(COIN, len(prefix))[group.seeds, len(prefix)] > 0.25
            yield group._replace(seeds=group.seeds[known], q=q)
            yield group._replace(seeds=group.seeds[~known], tokens=group.tokens[:1], q=q[:1])

    return drafts


def with_the_unknown_share(drawn_from):
    """What a token was drawn from, and the unknown token's share on the likeliest one."""
    tokens, weights = drawn_from
    return Candidates(tokens, (weights[0] + sum(weights) // 3, *weights[1:]))


@RULES
def test_a_draft_cut_at_an_unknown_token_is_exact(acceptance):
    texts, _ = play(padded(renormalised=True), acceptance, SETTING)
    assert p_value(texts, SETTING) > ALPHA


@RULES
def test_the_share_of_an_unknown_token_given_to_another_is_seen(acceptance):
    texts, _ = play(padded(renormalised=False), acceptance, SETTING)
    assert p_value(texts, SETTING) < ALPHA


@RULES
def test_a_rounded_q_is_exact_where_it_is_drawn_from(acceptance):
    texts, _ = play(sampled(SETTING, weigh=coarsely), acceptance, SETTING)
    assert p_value(texts, SETTING) > ALPHA
