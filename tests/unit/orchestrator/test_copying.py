"""The proposal hybrid: what repeats itself is copied without a drafter, the rest is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

import tests.unit.orchestrator.scripted as scripted
from deployments.orchestrator.config import FixedConfig, HybridConfig
from foredraft.types import DraftBlock, Proposal, Propose, SamplingParams
from tests.unit.orchestrator.running import run, wrong
from tests.unit.orchestrator.scripted import (
    ScriptedDrafter,
    ScriptedVerifier,
    config,
    request,
    true_block,
)

HYBRID = config(
    proposal=Proposal.HYBRID,
    adl=FixedConfig(k=4),
    hybrid=HybridConfig(shortest=3, shortest_sampled=6),
)


@pytest.fixture
def cyclic(monkeypatch: pytest.MonkeyPatch) -> None:
    """A target that says 0..9 over and over, whatever the prompt."""

    def next_token(prefix: Sequence[int]) -> int:
        return (prefix[-1] + 1) % 10

    monkeypatch.setattr(scripted, "next_token", next_token)


@pytest.mark.usefixtures("cyclic")
async def test_a_text_that_repeats_itself_is_copied_and_no_drafter_asked() -> None:
    # Its blocks are right and its guesses of what follows them wrong.
    drafter, verifier = ScriptedDrafter(wrong(at=4)), ScriptedVerifier()
    prompt = (*range(10), 0, 1, 2)
    _, report = await run(request(40, prompt=prompt), drafter, verifier, HYBRID)
    assert [opened.proposal for opened in drafter.opens] == [Proposal.TREE]
    assert report.rounds == report.draft_rounds == 8
    assert report.mat == 4.0
    # One is asked for when the drafter is attached, and one ahead of that one's verdict.
    assert len(drafter.asked) == 2


@pytest.mark.usefixtures("cyclic")
async def test_copies_need_no_drafter_at_all() -> None:
    async def never(_: int) -> None:
        raise scripted.Unavailable("no drafter")

    drafter = ScriptedDrafter()
    drafter.opening = never
    prompt = (*range(10), 0, 1, 2)
    _, report = await run(request(40, prompt=prompt), drafter, ScriptedVerifier(), HYBRID)
    assert report.drafter_attaches == 0
    # Plain are the first round, which waited for a drafter, and the last token.
    assert (report.mat, report.draft_rounds, report.rounds) == (4.0, 7, 9)


@pytest.mark.usefixtures("cyclic")
async def test_above_temperature_0_a_longer_match_is_asked_of() -> None:
    drafter = ScriptedDrafter()
    asked = request(4, prompt=(0, 1, 2, 3, 9, 0, 1, 2), sampling=SamplingParams(0.8))
    await run(asked, drafter, ScriptedVerifier(), HYBRID)
    assert drafter.asked


@pytest.mark.usefixtures("cyclic")
async def test_a_copy_ends_at_a_stop_token() -> None:
    verifier = ScriptedVerifier()
    prompt = (*range(10), 0, 1, 2)
    asked = request(40, prompt=prompt, stop_token_ids=(4,))
    tokens, _ = await run(asked, ScriptedDrafter(), verifier, HYBRID)
    assert tokens == (3, 4)
    assert verifier.rounds[0].draft in ((3, 4), (3, 4, 5, 6))


async def test_only_copies_made_here_are_not_run_ahead_of() -> None:
    async def lookup(index: int, ask: Propose, prefix: Sequence[int]) -> DraftBlock:
        return replace(true_block(ask, prefix), proposal=Proposal.LOOKUP)

    settings = HYBRID.model_copy(update={"proposal": Proposal.LOOKUP})
    _, report = await run(request(), ScriptedDrafter(lookup), ScriptedVerifier(), settings)
    assert report.run_ahead_hits > 5


async def test_what_does_not_repeat_is_asked_for() -> None:
    drafter = ScriptedDrafter()
    _, report = await run(request(), drafter, ScriptedVerifier(), HYBRID)
    assert report.mat > 3 and len(drafter.asked) > 5
