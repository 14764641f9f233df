"""The proposal hybrid: what repeats itself drafts for itself, the rest is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

import tests.support.peers as scripted
from foredraft.types import Base, DraftBlock, Proposal, Propose
from orchestrator.config import HybridConfig
from orchestrator.length.config import FixedConfig
from orchestrator.session.committed_prefix import CommittedPrefix
from orchestrator.session.ngram_draft import copied
from tests.support.peers import (
    ScriptedDrafter,
    ScriptedVerifier,
    config,
    request,
    true_block,
)
from tests.support.running import run, wrong

HYBRID = config(
    proposal=Proposal.HYBRID,
    adl=FixedConfig(k=4),
    hybrid=HybridConfig(least=3.0, pseudocounts=(0.01,)),
)


@pytest.fixture
def cyclic(monkeypatch: pytest.MonkeyPatch) -> None:
    """A target that says 0..9 over and over, whatever the prompt."""

    def next_token(prefix: Sequence[int]) -> int:
        return (prefix[-1] + 1) % 10

    monkeypatch.setattr(scripted, "next_token", next_token)


async def never(_: int) -> None:
    raise scripted.Unavailable("no drafter")


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
    drafter = ScriptedDrafter()
    drafter.opening = never
    prompt = (*range(10), 0, 1, 2)
    _, report = await run(request(40, prompt=prompt), drafter, ScriptedVerifier(), HYBRID)
    assert report.drafter_attaches == 0
    # Plain are the first round, which waited for a drafter, and the last token.
    assert (report.mat, report.draft_rounds, report.rounds) == (4.0, 7, 9)


@pytest.mark.usefixtures("cyclic")
async def test_where_too_little_can_be_expected_a_drafter_is_asked() -> None:
    drafter = ScriptedDrafter()
    # Once 2 was followed by 3, and once by 9.
    asked = request(4, prompt=(0, 1, 2, 3, 0, 1, 2, 9, 0, 1, 2))
    await run(asked, drafter, ScriptedVerifier(), HYBRID)
    assert drafter.asked


def test_where_the_text_went_on_in_two_ways_both_are_drafted() -> None:
    prefix = CommittedPrefix((0, 1, 2, 3, 0, 1, 2, 9, 0, 1, 2))
    base = Base("s", 0, len(prefix), prefix.hash)
    likely = HybridConfig(least=1.0, pseudocounts=(0.01,)).params
    found = copied(prefix, base, 4, likely, {9})
    assert found is not None
    asked, block = found
    assert (asked.base, asked.num_tokens) == (block.base, 4) == (base, 4)
    # 9 came last; it is a stop, behind which nothing comes.
    assert (block.tokens, block.parents) == ((9, 3, 0, 1), (-1, -1, 1, 2))
    assert block.generated_len == 0
    path = copied(CommittedPrefix((1, 2, 3, 1)), base, 2, likely, {9})
    assert path is not None and (path[1].tokens, path[1].parents) == ((2, 3), ())
    assert path[1].generated_len == 2
    assert copied(prefix, base, 0, likely, {9}) is None


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
