"""The pipeline over scripted peers: hits, misses, short requests, plain ones."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from foredraft.layout import with_hole
from foredraft.messages import DraftBlock, Propose
from foredraft.types import Acceptance, FinishReason, Origin
from orchestrator.controller_state import ControllerState
from orchestrator.drive.pipeline import generate
from orchestrator.request import StepEvent, Summary
from tests.support.orchestrator.peers import (
    PROMPT,
    Collected,
    ScriptedDrafter,
    ScriptedVerifier,
    plain,
    request,
    true_block,
)
from tests.support.orchestrator.running import FIXED, run, wrong
from tests.support.waiting import turns


async def test_every_prediction_comes_true_with_a_perfect_drafter() -> None:
    drafter = ScriptedDrafter()
    _, report = await run(request(), drafter, ScriptedVerifier())
    # The first token waits for no draft.
    assert report.rounds == 1 + report.draft_rounds == 13
    # One proposal for the prompt, whose rest is the second round's draft, then one ahead of each
    # verdict but the last: none just in time.
    assert len(drafter.asked) == 12
    assert report.run_ahead_rounds == report.run_ahead_hits == 11
    assert all(ask.append for ask in drafter.asked[1:])


async def test_an_any_subset_target_drafts_for_itself_and_no_drafter_is_asked() -> None:
    drafter, verifier = ScriptedDrafter(), ScriptedVerifier()
    infill = replace(request(), layout=with_hole(2, request().max_new_tokens, 2))
    _, report = await run(infill, drafter, verifier)
    [opened] = verifier.opens
    assert (opened.self_draft, opened.max_draft) == (FIXED.self_draft, 0)
    assert opened.layout == infill.layout
    assert report.mode.self_draft == FIXED.self_draft > 0
    assert not drafter.opens and not any(each.draft for each in verifier.rounds)
    for asked, config in (
        (replace(infill, speculate=False), FIXED),
        (infill, FIXED.model_copy(update={"self_draft": 0})),
        (request(), FIXED),
    ):
        await run(asked, drafter, verifier, config)
        assert verifier.opens[-1].self_draft == 0


async def test_after_a_miss_a_draft_is_requested_just_in_time() -> None:
    drafter = ScriptedDrafter(wrong(at=2))
    _, report = await run(request(), drafter, ScriptedVerifier())
    assert report.run_ahead_hits == 0
    # Of the first draft, the first of two right tokens was decided by then.
    assert report.mat == (1 + 19 * 2) / 20 and report.draft_rounds == 20
    ahead, just_in_time = drafter.asked[1], drafter.asked[2]
    assert (ahead.keep_len, len(ahead.append)) == (len(PROMPT) + 1, 4)
    assert (just_in_time.keep_len, len(just_in_time.append)) == (len(PROMPT) + 1, 2)


async def test_a_session_goes_by_what_the_last_of_its_kind_saw_of_predicted_outcomes() -> None:
    state, requested = ControllerState(), []
    for _ in range(2):
        events = generate(
            request(), ScriptedDrafter(wrong(at=2)), ScriptedVerifier(), FIXED, state=state
        )
        reports = [event.report async for event in events if isinstance(event, Summary)]
        requested.append(reports[0].run_ahead_rounds)
    assert requested[1] < requested[0]


async def test_the_next_draft_is_under_way_while_a_round_is_verified() -> None:
    drafter, verifier = ScriptedDrafter(), ScriptedVerifier()
    asked_before_verdict: list[int] = []

    async def before(index: int) -> None:
        await turns(5)
        asked_before_verdict.append(len(drafter.asked))

    verifier.before = before
    await run(request(), drafter, verifier)
    # The first draft, of the prompt, is under way when the first round is sent.
    assert asked_before_verdict[:5] == [1, 2, 3, 4, 5]


async def test_a_rounds_tokens_are_read_when_the_next_round_is_sent_and_the_first_at_once() -> None:
    drafter, verifier = ScriptedDrafter(wrong(at=2)), ScriptedVerifier()
    sent_when_read: list[int] = []
    one_by_one = FIXED.model_copy(update={"stream_interval_ms": 0.0})
    async for event in generate(request(), drafter, verifier, one_by_one):
        if isinstance(event, StepEvent):
            sent_when_read.append(len(verifier.rounds))
    rounds = len(verifier.rounds)
    assert sent_when_read == [1, *range(3, rounds + 1), rounds]


async def test_a_first_draft_that_comes_after_the_first_round_is_trimmed() -> None:
    verified = asyncio.Event()

    async def script(index: int, ask: Propose, prefix: Sequence[int]) -> DraftBlock:
        if index == 0:
            await verified.wait()
        return true_block(ask, prefix)

    async def before(index: int) -> None:
        if index == 1:
            verified.set()
            await turns()

    drafter, verifier = ScriptedDrafter(script), ScriptedVerifier()
    verifier.before = before
    _, report = await run(
        request(), drafter, verifier, FIXED.model_copy(update={"draft_deadline_ms": 1.0})
    )
    assert [len(r.draft) for r in verifier.rounds[:2]] == [0, 0]
    assert report.mat > 0


async def test_plain_requests_open_no_drafter_and_take_long_steps() -> None:
    drafter, verifier = ScriptedDrafter(), ScriptedVerifier()
    _, report = await run(request(60, speculate=False), drafter, verifier)
    assert not drafter.opens
    # The first token is not kept waiting for the next seven.
    assert [r.plain_passes for r in verifier.rounds] == [1] + [8] * 8
    assert [r.plain_steps for r in verifier.rounds] == [60, *range(59, 0, -8)]
    assert (report.origins, report.mat, report.drafter_attaches) == ({Origin.PLAIN: 60}, 0.0, 0)


async def test_plain_rounds_are_of_as_many_passes_where_a_pass_commits_more() -> None:
    verifier = ScriptedVerifier()
    verifier.tokens_a_pass = 4
    _, report = await run(request(100, speculate=False), ScriptedDrafter(), verifier)
    rounds = [(one.tokens, one.passes) for one in report.trace]
    assert rounds == [(4, 1), (32, 8), (32, 8), (32, 8)]


@pytest.mark.parametrize("max_new", [1, 2, 5, 6])
async def test_short_requests_end_exactly(max_new: int) -> None:
    await run(request(max_new), ScriptedDrafter(), ScriptedVerifier())


async def test_a_stop_token_inside_a_draft_ends_the_request() -> None:
    stop = plain(PROMPT, 30)[11]
    got = Collected()
    events = generate(
        request(60, stop_token_ids=(stop,)), ScriptedDrafter(), ScriptedVerifier(), FIXED
    )
    async for event in events:
        got.add(event)
    assert got.summary is not None and got.summary.finish is FinishReason.STOP
    assert got.tokens == plain(PROMPT, 60, (stop,))


async def test_a_drafter_gets_the_targets_noise_under_the_rule_coupled_only() -> None:
    seeds = {}
    for acceptance in Acceptance:
        drafter, verifier = ScriptedDrafter(), ScriptedVerifier()
        settings = FIXED.model_copy(update={"acceptance": acceptance})
        await run(request(8), drafter, verifier, settings)
        [opened], [verified] = drafter.opens, verifier.opens
        assert verified.acceptance is acceptance
        assert opened.marginals is (acceptance is Acceptance.L2R)
        seeds[acceptance] = opened.sampling.seed == verified.sampling.seed
    assert seeds == {rule: rule is Acceptance.COUPLED for rule in Acceptance}
