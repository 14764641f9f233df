"""Runs a request to its end over scripted peers and holds it to plain decoding."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from foredraft.messages import DraftBlock, Propose
from foredraft.types import Origin
from orchestrator.config import OrchestratorConfig
from orchestrator.drive.pipeline import generate
from orchestrator.length.config import FixedConfig
from orchestrator.report import SpeculationReport
from orchestrator.request import GenerationRequest
from tests.support.orchestrator.peers import (
    Collected,
    DraftScript,
    ScriptedDrafter,
    ScriptedVerifier,
    config,
    plain,
    true_block,
    wrong_at,
)
from tests.support.waiting import DEADLINE_S

FIXED = config(adl=FixedConfig(k=4))


async def run(
    asked: GenerationRequest,
    drafter: ScriptedDrafter,
    verifier: ScriptedVerifier,
    settings_: OrchestratorConfig = FIXED,
) -> tuple[tuple[int, ...], SpeculationReport]:
    """Generate to the end; every run must equal plain decoding and leave nothing open."""
    got = Collected()
    async with asyncio.timeout(DEADLINE_S):
        async for event in generate(asked, drafter, verifier, settings_):
            got.add(event)
    assert got.summary is not None
    assert got.tokens == plain(asked.prompt, asked.max_new_tokens, asked.stop_token_ids)
    assert not drafter.live and not verifier.live
    reconciles(got, got.summary.report)
    return got.tokens, got.summary.report


def reconciles(got: Collected, report: SpeculationReport) -> None:
    """The report's sums are those of the tokens and of the steps."""
    origins = [c.origin for step in got.steps for c in step.tokens]
    assert report.tokens == len(got.tokens) == len(origins)
    assert (
        report.num_accepted
        == origins.count(Origin.KEPT)
        == sum(s.stats.num_accepted for s in got.steps)
    )
    assert report.rounds == len(got.steps)
    assert report.num_draft_tokens == sum(s.stats.num_draft_tokens for s in got.steps)
    assert report.draft_rounds == sum(report.accepted_histogram.values())
    assert report.num_accepted == sum(n * count for n, count in report.accepted_histogram.items())
    assert report.run_ahead_hits <= report.run_ahead_rounds
    assert 0 <= report.acceptance_rate <= 1 and 0 <= report.run_ahead_hit_rate <= 1


def wrong(at: int, every: int = 1) -> DraftScript:
    """A drafter whose every n-th block is wrong at one index."""

    async def script(index: int, ask: Propose, prefix: Sequence[int]) -> DraftBlock:
        block = true_block(ask, prefix)
        return wrong_at(block, at) if index % every == 0 else block

    return script


async def a_millisecond(_: int) -> None:
    await asyncio.sleep(0.001)


async def next_round(verifier: ScriptedVerifier) -> None:
    """Return when the verifier has been sent another round: what waits for it comes late."""
    sent = len(verifier.rounds)
    while len(verifier.rounds) == sent:
        await asyncio.sleep(0.001)
