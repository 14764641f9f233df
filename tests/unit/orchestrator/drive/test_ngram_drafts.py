"""The n-gram switch: text that repeats itself drafts for itself, a drafter drafts the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

import tests.support.orchestrator.peers as scripted
from foredraft.errors import Unavailable
from foredraft.messages import DraftBlock, Propose
from foredraft.types import Proposal
from orchestrator.config import NgramConfig
from orchestrator.length.config import FixedConfig
from tests.support.orchestrator.peers import (
    ScriptedDrafter,
    ScriptedVerifier,
    config,
    request,
    true_block,
)
from tests.support.orchestrator.running import run, wrong

SWITCHED_ON = NgramConfig(enabled=True, min_expected_tokens=3.0, pseudocounts=(0.01,))
NGRAM = config(proposal=Proposal.TREE, adl=FixedConfig(k=4), ngram=SWITCHED_ON)


@pytest.fixture
def cyclic(monkeypatch: pytest.MonkeyPatch) -> None:
    """A target that says 0..9 over and over, whatever the prompt."""

    def next_token(prefix: Sequence[int]) -> int:
        return (prefix[-1] + 1) % 10

    monkeypatch.setattr(scripted, "next_token", next_token)


async def never(_: int) -> None:
    raise Unavailable("no drafter")


@pytest.mark.usefixtures("cyclic")
async def test_a_text_that_repeats_itself_is_drafted_and_no_drafter_asked() -> None:
    # Its blocks are right and its guesses of what follows them wrong.
    drafter, verifier = ScriptedDrafter(wrong(at=4)), ScriptedVerifier()
    prompt = (*range(10), 0, 1, 2)
    _, report = await run(request(40, prompt=prompt), drafter, verifier, NGRAM)
    assert [opened.proposal for opened in drafter.opens] == [Proposal.TREE]
    assert report.rounds == report.draft_rounds == report.ngram_rounds == 8
    assert report.mat == 4.0 and report.mode.ngram
    assert not drafter.asked


@pytest.mark.usefixtures("cyclic")
async def test_n_gram_drafts_need_no_drafter_at_all() -> None:
    drafter = ScriptedDrafter()
    drafter.opening = never
    prompt = (*range(10), 0, 1, 2)
    _, report = await run(request(40, prompt=prompt), drafter, ScriptedVerifier(), NGRAM)
    assert report.drafter_attaches == 0
    assert (report.mat, report.draft_rounds, report.rounds) == (4.0, 8, 8)


@pytest.mark.usefixtures("cyclic")
async def test_where_too_little_can_be_expected_a_drafter_is_asked() -> None:
    drafter = ScriptedDrafter()
    # Once 2 was followed by 3, and once by 9.
    asked = request(4, prompt=(0, 1, 2, 3, 0, 1, 2, 9, 0, 1, 2))
    await run(asked, drafter, ScriptedVerifier(), NGRAM)
    assert drafter.asked


@pytest.mark.usefixtures("cyclic")
async def test_an_n_gram_draft_ends_at_a_stop_token() -> None:
    verifier = ScriptedVerifier()
    prompt = (*range(10), 0, 1, 2)
    asked = request(40, prompt=prompt, stop_token_ids=(4,))
    tokens, _ = await run(asked, ScriptedDrafter(), verifier, NGRAM)
    assert tokens == (3, 4)
    assert verifier.rounds[1].draft in ((4,), (4, 5, 6))


@pytest.mark.parametrize("proposal", [Proposal.LOOKUP, Proposal.TREE, Proposal.COUPLED])
async def test_a_drafters_blocks_are_run_ahead_of_whatever_made_them(proposal: Proposal) -> None:
    async def made(index: int, ask: Propose, prefix: Sequence[int]) -> DraftBlock:
        return replace(true_block(ask, prefix), proposal=proposal)

    settings = NGRAM.model_copy(update={"proposal": proposal})
    _, report = await run(request(), ScriptedDrafter(made), ScriptedVerifier(), settings)
    assert report.run_ahead_hits > 5 and report.ngram_rounds == 0


async def test_what_does_not_repeat_is_asked_for() -> None:
    drafter = ScriptedDrafter()
    _, report = await run(request(), drafter, ScriptedVerifier(), NGRAM)
    assert report.mat > 3 and len(drafter.asked) > 5


@pytest.mark.usefixtures("cyclic")
async def test_switched_off_every_draft_is_the_drafters() -> None:
    drafter = ScriptedDrafter()
    off = NGRAM.model_copy(update={"ngram": SWITCHED_ON.model_copy(update={"enabled": False})})
    prompt = (*range(10), 0, 1, 2)
    _, report = await run(request(40, prompt=prompt), drafter, ScriptedVerifier(), off)
    assert report.ngram_rounds == 0 and len(drafter.asked) == report.draft_rounds
    assert not report.mode.ngram


@pytest.mark.usefixtures("cyclic")
async def test_a_plain_request_takes_no_n_grams() -> None:
    prompt = (*range(10), 0, 1, 2)
    asked = request(40, prompt=prompt, speculate=False)
    _, report = await run(asked, ScriptedDrafter(), ScriptedVerifier(), NGRAM)
    assert report.draft_rounds == 0 and not report.mode.ngram


async def test_a_verifier_learns_how_plain_rounds_draft_for_themselves() -> None:
    for asked, expected in ((request(4), SWITCHED_ON.params), (request(4, speculate=False), None)):
        verifier = ScriptedVerifier()
        await run(asked, ScriptedDrafter(), verifier, NGRAM)
        assert [opened.ngram for opened in verifier.opens] == [expected]
