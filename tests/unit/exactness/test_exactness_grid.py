"""No speculation changes the law of the output: every proposal under every rule but `l2r`.

The first tokens of 100,000 sessions are compared with the target's exact law by chi-square. A q
that a draft was not drawn from must fail; tests/unit/exactness/test_planted_bugs.py shows what else
the same test can see.
"""

from functools import cache, partial
from itertools import product

import numpy as np
import pytest
from _pytest.mark import ParameterSet

from drafter_service.proposals.sampled import sampled_path
from foredraft.decoding.prefix import hash_prefix
from foredraft.messages import Round, Verdict, VerifyOpen
from foredraft.types import Acceptance, Base
from tests.support.law.exactness import (
    ALPHA,
    DRAFT_LENGTH,
    DRAWS,
    FIRST,
    LENGTH,
    PROMPT,
    Setting,
    p_value,
    play,
)
from tests.support.law.small_drafter import (
    EOS,
    MOST,
    always_wrong,
    argmax,
    block_scores,
    constant,
    copied,
    peeking,
    sampled,
    searched,
    with_shared_noise,
)
from tests.support.law.tabular_model import TabularModel
from tests.support.verifiers import make_engine

EXACT = COUPLED, REJECTION, BLOCK = Acceptance.COUPLED, Acceptance.REJECTION, Acceptance.BLOCK
SETTINGS = [Setting(temperature, top_p) for temperature in (0.7, 1.0) for top_p in (1.0, 0.8)]

# Each is told how the target is sampled, and drafts groups of seeds.
PROPOSALS = {
    "argmax": lambda setting: argmax,
    "copied": lambda setting: copied,
    "sampled": sampled,
    "coupled": lambda setting: with_shared_noise("coupled", setting),
    "cps": lambda setting: with_shared_noise("cps", setting),
}
ADVERSARIES = {
    "constant": lambda setting: constant,
    "always wrong": always_wrong,
    "peeking": peeking,
}


@cache
def plain(setting):
    """What is decoded without any draft."""
    return play(lambda prefix, seeds: [], COUPLED, setting)[0]


def combinations() -> list[ParameterSet]:
    """Every proposal under every rule and setting; only coupled verifies trees.

    Drafts with the shared noise are made seed by seed, which takes long: each in two settings.
    """
    found = []
    for proposal, acceptance, setting in product(PROPOSALS, EXACT, SETTINGS):
        marks = []
        if proposal in ("coupled", "cps") and setting not in (SETTINGS[0], SETTINGS[-1]):
            continue
        if proposal in ("coupled", "cps", "copied") or setting.top_p == 1.0:
            marks = [pytest.mark.slow]
        found.append(pytest.param(proposal, acceptance, setting, marks=marks))
    return found


@pytest.mark.parametrize(("proposal", "acceptance", "setting"), combinations(), ids=str)
def test_the_targets_law_is_kept(proposal, acceptance, setting):
    texts, kept = play(PROPOSALS[proposal](setting), acceptance, setting)
    assert p_value(texts, setting) > ALPHA
    # The drafts matter: some are kept.
    assert kept > 0.25
    if acceptance is COUPLED:
        assert np.array_equal(texts, plain(setting))


@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_trees_give_the_texts_that_keep_the_law(setting):
    # Of the shared noise alone, seed by seed: the law is that of `plain`, which all seeds show.
    draws = DRAWS // 5
    texts, kept = play(with_shared_noise("tree", setting, draws), COUPLED, setting, draws=draws)
    assert p_value(plain(setting), setting) > ALPHA
    assert np.array_equal(texts, plain(setting)[:draws])
    assert kept > 0.25


@pytest.mark.parametrize("acceptance", EXACT)
@pytest.mark.parametrize("adversary", ADVERSARIES)
def test_no_drafter_can_change_the_law(adversary, acceptance):
    """A draft without q is taken for what it is, a token that could be no other."""
    setting = Setting(0.7, 0.8)
    texts, kept = play(ADVERSARIES[adversary](setting), acceptance, setting)
    assert p_value(texts, setting) > ALPHA
    if acceptance is COUPLED:
        assert np.array_equal(texts, plain(setting))
        assert adversary != "always wrong" or kept == 0


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_marginals_of_a_searched_path_change_the_law(setting):
    """DiffuSpec's acceptance (Eq. 1 and 5) is biased above temperature 0; one-hot q is not."""
    texts, kept = play(searched(setting), Acceptance.L2R, setting)
    assert p_value(texts, setting) < ALPHA and kept > 0.25
    for acceptance in (REJECTION, BLOCK):
        texts, kept = play(searched(setting, with_marginals=False), acceptance, setting)
        assert p_value(texts, setting) > ALPHA and kept > 0.25


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_the_grid_samples_what_the_service_samples(setting):
    groups = sampled(setting)((), np.arange(300))
    for seed in range(300):
        ((_, tokens, q, _),) = [group for group in groups if seed in group.seeds]
        drafted = sampled_path(
            block_scores(), DRAFT_LENGTH, EOS, setting.params(seed), FIRST, FIRST, MOST
        )
        assert (drafted.tokens, drafted.q) == (tokens, q)


@pytest.mark.parametrize(
    ("proposal", "acceptance"),
    [
        ("sampled", COUPLED),
        ("sampled", REJECTION),
        ("sampled", BLOCK),
        ("argmax", BLOCK),
        ("coupled", REJECTION),
        ("tree", COUPLED),
        ("searched", Acceptance.L2R),
    ],
)
def test_the_grid_plays_what_sessions_play(proposal, acceptance):
    setting = Setting(0.7, 0.8)
    draws, drafts = DRAWS, (PROPOSALS | {"searched": searched}).get(proposal)
    if proposal in ("coupled", "tree"):
        # Each seed's is made by itself.
        draws = 2_000
        drafts = partial(with_shared_noise, proposal, draws=draws)
    drafts = drafts(setting)  # type: ignore[misc]
    texts, _ = play(drafts, acceptance, setting, draws=draws)
    model = TabularModel()
    for seed in range(0, draws, draws // 200):
        engine, text = make_engine(model), list(PROMPT)
        sampling = setting.params(seed)
        asked = VerifyOpen("s", PROMPT, sampling, 10, 8, acceptance=acceptance)
        handle = engine.open(asked)
        while len(text) < FIRST + LENGTH:
            groups = drafts(tuple(text[FIRST:]), np.array([seed]))
            mine = [group for group in groups if seed in group.seeds]
            _, tokens, q, parents = mine[0] if mine else (None, (), (), ())
            base = Base("s", len(text), len(text), hash_prefix(text))
            engine.submit(handle, Round(base, tokens, 1, parents, q))
            (outcome,) = engine.step() or engine.step() or engine.step()
            assert isinstance(outcome.result, Verdict), outcome
            text += [*(tokens[i] for i in outcome.result.kept), *outcome.result.next_tokens]
        assert tuple(text[FIRST:]) == tuple(texts[seed])
        engine.close(handle)
