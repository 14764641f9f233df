"""The strategy that a session gets, and what is refused by name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from drafter_service.config import DrafterConfig
from drafter_service.proposals.denoising import MASK
from foredraft.errors import ConfigError, InvalidRequest
from foredraft.strict import parse
from foredraft.types import Proposal, SamplingParams, WarmupProposal
from tests.support.drafters import (
    EOS,
    ScriptedLM,
    asking,
    counting,
    driven,
    engine_of,
    opening,
    scores_of,
    settled,
    strategies_of,
)

PREFIX = (3, 4, 5)
PATHS = [Proposal.ARGMAX, Proposal.COUPLED, Proposal.CPS, Proposal.SAMPLED]


def chosen(proposal, model=None, settings=None, **options):
    strategies = strategies_of(model or ScriptedLM(counting), **(settings or {}))
    return strategies.make(opening("s", PREFIX, proposal=proposal, **options))


def drafted(strategy, count, context=PREFIX, answer=None):
    script = answer or (lambda a: settled(counting(a.text, a.num_slots), a.filled))
    return driven(strategy.draft(count, context, 50), script)


@pytest.mark.parametrize("proposal", PATHS)
def test_a_path_comes_from_one_pass(proposal):
    block, asked = drafted(chosen(proposal), 3)
    assert (block.tokens, block.bonus_guess, len(asked)) == ((6, 7, 8), 9, 1)
    assert block.q == ()


def test_sampled_says_what_it_drew_from_and_how_much_of_it_is_set():
    even = {t: 1 / 15 for t in range(1, 16)} | {EOS: 1e-9}
    flat = lambda asked: scores_of([even] * asked.num_slots)  # noqa: E731
    sampling = SamplingParams(1.0, seed=2)
    block, _ = drafted(chosen(Proposal.SAMPLED, sampling=sampling), 3, answer=flat)
    assert [len(q.tokens) for q in block.q] == [15] * 3
    few = {"sampled": {"candidates": 4}}
    block, _ = drafted(chosen(Proposal.SAMPLED, settings=few, sampling=sampling), 3, answer=flat)
    assert [len(q.tokens) for q in block.q] == [4] * 3


def test_ar_and_lookup_have_their_own_limits():
    assert chosen(Proposal.AR).max_draft_tokens == 8
    assert len(drafted(chosen(Proposal.AR), 3)[1]) == 3
    lookup = chosen(Proposal.LOOKUP, settings={"lookup": {"shortest": 1, "max_tokens": 4}})
    assert lookup.max_draft_tokens == 4
    assert drafted(lookup, 4, (1, 2, 3, 1))[0].tokens == (2, 3, 1)


@pytest.mark.parametrize(
    ("proposal", "marginals"),
    [
        *((proposal, False) for proposal in (*PATHS, Proposal.TREE, Proposal.AR)),
        # A tree has none.
        *((proposal, True) for proposal in (*PATHS, Proposal.AR)),
    ],
)
def test_noise_chooses_candidates_where_it_may_decide_what_is_drafted(proposal, marginals):
    """Drafts with a q are drawn with noise of their own: the target's must choose none of them."""
    sampling = SamplingParams(0.8, seed=4)
    opened = replace(
        opening("s", PREFIX, proposal=proposal, sampling=sampling), marginals=marginals
    )
    strategy = strategies_of(ScriptedLM(counting)).make(opened)
    with_q = proposal in (Proposal.ARGMAX, Proposal.SAMPLED)
    alone = with_q or (marginals and proposal is not Proposal.AR)
    _, asked = drafted(strategy, 3)
    assert {each.sampling for each in asked} == {SamplingParams() if alone else sampling}


@pytest.mark.parametrize("proposal", [*PATHS, Proposal.TREE])
def test_steps_are_denoising_passes(proposal):
    block, asked = drafted(chosen(proposal, steps=3), 3)
    slots = asked[0].num_slots
    assert [a.filled.count(MASK) if a.filled else slots for a in asked] == (
        [4, 2, 1] if slots == 4 else [3, 2, 1]
    )
    assert block.tokens[:3] == (6, 7, 8)


@pytest.mark.parametrize("proposal", PATHS)
def test_extending_paths_grow_up_to_their_own_limit(proposal):
    settings = {"extend": {"block": 2, "confidence": 0.5, "max_tokens": 20}}
    strategy = chosen(proposal, settings=settings, extend=True)
    assert strategy.max_draft_tokens == 20
    block, asked = drafted(strategy, 5)
    assert (block.tokens, len(asked)) == ((6, 7, 8, 9, 10), 3)


def test_a_block_to_extend_is_cut_to_the_models_slots():
    strategy = chosen(Proposal.ARGMAX, settings={"extend": {"block": 20}}, extend=True)
    assert [a.num_slots for a in drafted(strategy, 20)[1]] == [9, 9, 5]


@pytest.mark.parametrize("first", [WarmupProposal.AR, WarmupProposal.LOOKUP])
def test_the_first_tokens_count_from_the_prefix_of_open(first):
    strategy = chosen(Proposal.COUPLED, warmup_proposal=first, warmup_tokens=2)
    passes = [len(drafted(strategy, 3, (1,) * n)[1]) for n in (3, 4, 5)]
    assert passes == [3 if first is WarmupProposal.AR else 0] * 2 + [1]


def test_a_session_opened_again_counts_from_its_prompt():
    options = {"warmup_proposal": WarmupProposal.AR, "warmup_tokens": 2}
    again = replace(opening("s", PREFIX, proposal=Proposal.COUPLED, **options), prompt_len=1)
    strategy = strategies_of(ScriptedLM(counting)).make(again)
    assert [len(drafted(strategy, 3, (1,) * n)[1]) for n in (2, 3, 4)] == [3, 1, 1]


def test_an_autoregressive_opening_says_what_it_drew_from_where_the_proposal_does():
    options = {
        "sampling": SamplingParams(1.0, seed=2),
        "warmup_proposal": WarmupProposal.AR,
        "warmup_tokens": 9,
    }
    for proposal in (Proposal.SAMPLED, Proposal.COUPLED):
        block, asked = drafted(chosen(proposal, **options), 3)
        assert len(asked) == 3
        assert len(block.q) == (3 if proposal is Proposal.SAMPLED else 0)


@pytest.mark.parametrize(
    ("proposal", "params", "named"),
    [
        (Proposal.AR, {"steps": 2}, "params.steps"),
        (Proposal.LOOKUP, {"steps": 2}, "params.steps"),
        (Proposal.AR, {"extend": True}, "params.extend"),
        (Proposal.LOOKUP, {"extend": True}, "params.extend"),
        (Proposal.TREE, {"extend": True}, "params.extend"),
    ],
)
def test_what_a_proposal_cannot_do_is_refused_by_name(proposal, params, named):
    engine = engine_of(ScriptedLM(counting))
    with pytest.raises(InvalidRequest) as caught:
        engine.open(opening("s", PREFIX, proposal=proposal, **params))
    assert caught.value.param == named
    assert engine.sessions == 0


def test_a_model_that_needs_whole_blocks_refuses_steps():
    engine = engine_of(ScriptedLM(counting, partial_blocks=False))
    with pytest.raises(InvalidRequest) as caught:
        engine.open(opening("s", PREFIX, steps=2))
    assert caught.value.param == "params.steps"
    handle, _ = engine.open(opening("s", PREFIX))
    assert engine.propose([(handle, asking("s", PREFIX, 3, 2))])[0].tokens == (6, 7)


@pytest.mark.parametrize(
    ("section", "settings"),
    [
        ("sampled", {"candidates": 65}),
        ("sampled", {"candidates": 0}),
        ("extend", {"block": 0}),
        ("extend", {"confidence": 1.1}),
        ("extend", {"max_tokens": 257}),
        ("lookup", {"shortest": 9}),
        ("lookup", {"longest": 9}),
    ],
)
def test_settings_out_of_range_are_named(section, settings):
    with pytest.raises(ConfigError) as caught:
        parse(DrafterConfig, {"model": "x", section: settings})
    assert caught.value.param == f"{section}.{next(iter(settings))}"
