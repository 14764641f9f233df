"""Drafters that are slow, gone or wrong: no request ends by them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from foredraft.errors import (
    InvalidRequest,
    Unavailable,
)
from foredraft.messages import DraftBlock, DraftOpened, Propose
from orchestrator.config import BreakerConfig
from tests.support.orchestrator.peers import (
    MODEL,
    ScriptedDrafter,
    ScriptedVerifier,
    config,
    request,
    true_block,
    wrong_at,
)
from tests.support.orchestrator.running import FIXED, a_millisecond, next_round, run


async def test_a_late_draft_makes_one_round_plain_and_speculation_resumes() -> None:
    async def script(index: int, ask: Propose, prefix: Sequence[int]) -> DraftBlock:
        if index == 3:
            await next_round(verifier)
        return true_block(ask, prefix)

    drafter, verifier = ScriptedDrafter(script), ScriptedVerifier()
    verifier.before = a_millisecond
    slow = FIXED.model_copy(update={"draft_deadline_ms": 20.0})
    _, report = await run(request(400), drafter, verifier, slow)
    lengths = [len(r.draft) for r in verifier.rounds]
    assert 0 in lengths and any(lengths[-3:])
    assert len(drafter.opens) == 1 and report.draft_rounds > 10


async def test_a_drafter_that_never_answers_is_replaced() -> None:
    async def script(index: int, ask: Propose, prefix: Sequence[int]) -> DraftBlock:
        if index == 2:
            await asyncio.Event().wait()
        return true_block(ask, prefix)

    drafter, verifier = ScriptedDrafter(script), ScriptedVerifier()
    verifier.before = a_millisecond
    impatient = FIXED.model_copy(update={"draft_deadline_ms": 10.0, "drafter_timeout_s": 0.03})
    _, report = await run(request(400), drafter, verifier, impatient)
    assert report.drafter_attaches == 2
    assert any(r.draft for r in verifier.rounds[-3:])


async def test_a_late_draft_is_waited_for_once() -> None:
    async def script(index: int, ask: Propose, prefix: Sequence[int]) -> DraftBlock:
        if index == 2:
            await asyncio.Event().wait()
        return true_block(ask, prefix)

    drafter, verifier = ScriptedDrafter(script), ScriptedVerifier()
    verifier.before = a_millisecond
    patient = FIXED.model_copy(
        update={
            "draft_deadline_ms": 200.0,
            "drafter_timeout_s": 60.0,
            "breaker": BreakerConfig(threshold=99),
        }
    )
    _, report = await run(request(400), drafter, verifier, patient)
    assert report.draft_rounds <= 3
    # Waiting in every round would come to more than ten seconds.
    assert report.rounds > 50 and report.drafting_s < 5


async def test_a_draft_in_time_forgives_the_late_ones_before_it() -> None:
    async def script(index: int, ask: Propose, prefix: Sequence[int]) -> DraftBlock:
        if index % 4 == 3:
            await next_round(verifier)
        return true_block(ask, prefix)

    drafter, verifier = ScriptedDrafter(script), ScriptedVerifier()
    verifier.before = a_millisecond
    strict = FIXED.model_copy(
        update={"draft_deadline_ms": 100.0, "breaker": BreakerConfig(threshold=2, cooldown_s=60)}
    )
    await run(request(120), drafter, verifier, strict)
    assert len(drafter.opens) == 1
    assert len(drafter.asked) > 8


async def test_a_new_drafter_starts_with_the_longest_draft() -> None:
    async def script(index: int, ask: Propose, prefix: Sequence[int]) -> DraftBlock:
        if index == 20:
            raise Unavailable("killed")
        return replace(wrong_at(true_block(ask, prefix), 1), generated_len=2)

    drafter, verifier = ScriptedDrafter(script), ScriptedVerifier()
    verifier.before = a_millisecond
    await run(request(200), drafter, verifier, config())
    lengths = [ask.num_tokens for ask in drafter.asked]
    assert lengths[0] == lengths[21] == 16
    assert max(lengths[10:21]) < 16


async def test_a_drafter_that_is_always_late_is_asked_less_and_less() -> None:
    async def script(index: int, ask: Propose, prefix: Sequence[int]) -> DraftBlock:
        await next_round(verifier)
        return wrong_at(true_block(ask, prefix), 0)

    drafter, verifier = ScriptedDrafter(script), ScriptedVerifier()
    hurried = FIXED.model_copy(
        update={"draft_deadline_ms": 50.0, "breaker": BreakerConfig(threshold=2, cooldown_s=60)}
    )
    _, report = await run(request(800), drafter, verifier, hurried)
    # With the breaker open, rounds neither wait nor ask.
    assert len(drafter.opens) == 1 and len(drafter.asked) <= 4
    assert report.drafting_s < 2


@pytest.mark.parametrize("lost_at", range(5))
async def test_a_lost_drafter_is_replaced_and_speculation_resumes(lost_at: int) -> None:
    async def script(index: int, ask: Propose, prefix: Sequence[int]) -> DraftBlock:
        if index == lost_at:
            raise Unavailable("killed")
        return true_block(ask, prefix)

    async def opening(opens: int) -> None:
        if opens in (2, 3, 4):
            raise Unavailable("nobody there")

    drafter, verifier = ScriptedDrafter(script), ScriptedVerifier()
    drafter.opening, verifier.before = opening, a_millisecond
    _, report = await run(request(300), drafter, verifier)
    assert (len(drafter.opens), report.drafter_attaches) == (5, 2)
    assert any(r.draft for r in verifier.rounds[-3:])
    assert any(not r.draft for r in verifier.rounds)


async def test_without_any_drafter_decoding_is_plain() -> None:
    async def opening(opens: int) -> None:
        raise Unavailable("nobody there")

    drafter = ScriptedDrafter()
    drafter.opening = opening
    _, report = await run(request(), drafter, ScriptedVerifier())
    assert report.draft_rounds == 0


async def test_a_drafter_that_cannot_be_reached_delays_only_the_first_round() -> None:
    async def opening(opens: int) -> None:
        await asyncio.Event().wait()

    drafter = ScriptedDrafter()
    drafter.opening = opening
    quick = FIXED.model_copy(update={"draft_deadline_ms": 100.0})
    _, report = await run(request(400), drafter, ScriptedVerifier(), quick)
    assert report.draft_rounds == 0 and report.drafting_s < 2


async def test_a_drafter_that_refuses_the_session_is_not_asked_again() -> None:
    async def opening(opens: int) -> None:
        raise InvalidRequest("too long", param="max_len")

    drafter = ScriptedDrafter()
    drafter.opening = opening
    verifier = ScriptedVerifier()
    _, report = await run(request(), drafter, verifier)
    assert len(drafter.opens) == 1
    # It is decoded plainly, in long steps, and the answer says why.
    assert report.drafter_refusal == "too long"
    assert max(asked.plain_passes for asked in verifier.rounds) == 8


async def test_a_drafter_with_a_bug_costs_no_request() -> None:
    async def script(index: int, ask: Propose, prefix: Sequence[int]) -> DraftBlock:
        raise RuntimeError("bug")

    async def opening(opens: int) -> None:
        if opens == 2:
            raise RuntimeError("another")

    drafter = ScriptedDrafter(script)
    drafter.opening = opening
    _, report = await run(request(), drafter, ScriptedVerifier())
    assert report.draft_rounds == 0


async def test_a_draining_drafter_is_left_for_another_one() -> None:
    drafter, verifier = ScriptedDrafter(), ScriptedVerifier()

    async def before(index: int) -> None:
        if index == 3:
            next(iter(drafter.live)).draining = True

    verifier.before = before
    _, report = await run(request(120), drafter, verifier)
    assert (len(drafter.opens), report.drafter_attaches) == (2, 2)
    assert any(r.draft for r in verifier.rounds[-3:])


async def test_a_drafter_of_another_tokenizer_is_refused() -> None:
    drafter = ScriptedDrafter(opened=DraftOpened(replace(MODEL, tokenizer_hash="?"), 16))
    _, report = await run(request(), drafter, ScriptedVerifier())
    assert len(drafter.opens) == 1
    assert report.draft_rounds <= 1


async def test_nonsense_from_a_drafter_changes_nothing_and_gets_it_replaced() -> None:
    async def script(index: int, ask: Propose, prefix: Sequence[int]) -> DraftBlock:
        block = true_block(ask, prefix)
        return (
            replace(block, tokens=(99_999,)),
            replace(block, base=replace(block.base, prefix_len=1)),
            replace(block, tokens=()),
            replace(block, tokens=block.tokens * 9),
            block,
        )[index % 5]

    drafter = ScriptedDrafter(script)
    await run(request(200), drafter, ScriptedVerifier())
    assert len(drafter.opens) > 1
