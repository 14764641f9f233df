"""Verifiers that are lost, drained or refuse."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from foredraft.errors import (
    CorruptModelOutput,
    Overloaded,
    Unavailable,
)
from orchestrator.controller_state import ControllerState
from orchestrator.drive.pipeline import generate
from tests.support.orchestrator.peers import (
    MODEL,
    PROMPT,
    Collected,
    ScriptedDrafter,
    ScriptedVerifier,
    config,
    plain,
    request,
)
from tests.support.orchestrator.running import FIXED, run, wrong


@pytest.mark.parametrize("decided", [False, True])
@pytest.mark.parametrize("lost_at", range(4))
async def test_a_lost_verifier_is_replaced_and_no_token_is_lost_or_repeated(
    lost_at: int, decided: bool
) -> None:
    async def script(index: int) -> None:
        if index == lost_at:
            raise Unavailable("killed")

    verifier = ScriptedVerifier()
    if decided:
        verifier.after = script
    else:
        verifier.before = script
    drafter = ScriptedDrafter(wrong(at=3, every=3))
    _, report = await run(request(), drafter, verifier)
    assert report.verifier_moves == 1
    lost, again = verifier.rounds[lost_at : lost_at + 2]
    # The draft is asked again, so nothing is drafted twice for it.
    assert again.draft == lost.draft and again.base.round == lost.base.round + 1
    assert again.base.prefix_hash == lost.base.prefix_hash
    assert len(verifier.opens[1].prefix) == again.base.prefix_len


async def test_a_verifier_that_stays_away_ends_the_request_with_its_error() -> None:
    async def opening(opens: int) -> None:
        if opens > 1:
            raise Unavailable("nobody there")

    async def before(index: int) -> None:
        if index == 3:
            raise Unavailable("killed")

    drafter, verifier = ScriptedDrafter(), ScriptedVerifier()
    verifier.opening, verifier.before = opening, before
    got = Collected()
    with pytest.raises(Unavailable):
        async for event in generate(request(), drafter, verifier, FIXED):
            got.add(event)
    assert len(verifier.opens) > 2
    assert len(got.steps) == 3 and got.tokens == plain(PROMPT, 60)[: len(got.tokens)]
    assert not drafter.live and not verifier.live


async def test_a_session_waits_for_a_replica_however_often_none_is_there() -> None:
    """A replica that is being replaced is not one that was lost again and again."""
    settings = FIXED.model_copy(
        update={"verifier_retry": FIXED.verifier_retry.model_copy(update={"wait_s": 60.0})}
    )

    async def opening(opens: int) -> None:
        if 1 < opens < 30:
            raise Unavailable("no replica is running")

    async def before(index: int) -> None:
        if index == 3:
            raise Unavailable("killed")

    verifier = ScriptedVerifier()
    verifier.opening, verifier.before = opening, before
    _, report = await run(request(), ScriptedDrafter(), verifier, settings)
    assert len(verifier.opens) == 30 and report.verifier_moves == 1


async def test_a_request_that_kills_its_verifiers_ends() -> None:
    async def before(index: int) -> None:
        raise Unavailable("killed")

    verifier = ScriptedVerifier()
    verifier.before = before
    with pytest.raises(Unavailable):
        await run(request(), ScriptedDrafter(), verifier)
    assert len(verifier.opens) == 1 + FIXED.verifier_retry.attempts


async def test_numbers_that_are_not_finite_end_the_request_after_the_retries() -> None:
    async def before(index: int) -> None:
        raise CorruptModelOutput("logits are not finite")

    verifier = ScriptedVerifier()
    verifier.before = before
    with pytest.raises(CorruptModelOutput):
        await run(request(), ScriptedDrafter(), verifier)


async def test_a_full_verifier_refuses_what_may_not_wait_and_later_what_may() -> None:
    async def full(opens: int) -> None:
        raise Overloaded("no room")

    verifier = ScriptedVerifier()
    verifier.opening = full
    with pytest.raises(Overloaded):
        await run(replace(request(), may_wait=False), ScriptedDrafter(), verifier)
    assert len(verifier.opens) == 1
    with pytest.raises(Overloaded):
        await run(request(), ScriptedDrafter(), verifier)
    assert len(verifier.opens) > 2


async def test_a_request_waits_for_the_end_of_another() -> None:
    verifier, state = ScriptedVerifier(), ControllerState()

    async def one_at_a_time(opens: int) -> None:
        if verifier.live:
            raise Overloaded("no room")

    verifier.opening = one_at_a_time
    patient = config(admission_wait_s=5.0)

    async def text(number: int) -> tuple[int, ...]:
        asked, got = replace(request(), session_id=str(number)), Collected()
        async for event in generate(asked, ScriptedDrafter(), verifier, patient, state=state):
            got.add(event)
        return got.tokens

    first, *others = await asyncio.gather(*map(text, range(4)))
    assert others == [first] * 3
    assert not state.traffic.sessions and not state.traffic.line.waiting


async def test_a_request_that_was_admitted_waits_for_another_verifier() -> None:
    async def full_for_a_while(opens: int) -> None:
        if opens in (2, 3):
            raise Overloaded("no room")

    async def before(index: int) -> None:
        if index == 2:
            raise Unavailable("killed")

    verifier = ScriptedVerifier()
    verifier.opening, verifier.before = full_for_a_while, before
    await run(request(), ScriptedDrafter(), verifier)
    assert len(verifier.opens) == 4


async def test_a_draining_verifier_is_left_at_the_next_round() -> None:
    verifier = ScriptedVerifier()

    async def before(index: int) -> None:
        if index == 2:
            verifier.live[0].draining = True

    verifier.before = before
    _, report = await run(request(), ScriptedDrafter(), verifier)
    assert report.verifier_moves == 1
    assert len(verifier.opens[1].prefix) == verifier.rounds[3].base.prefix_len


async def test_with_nowhere_to_go_a_draining_verifier_serves_to_the_end() -> None:
    verifier = ScriptedVerifier()

    async def before(index: int) -> None:
        verifier.live[0].draining = True

    async def opening(opens: int) -> None:
        if opens > 1:
            raise Unavailable("nobody there")

    verifier.before, verifier.opening = before, opening
    await run(request(), ScriptedDrafter(), verifier)
    assert len(verifier.opens) == 2


async def test_a_verifier_with_another_model_is_not_taken() -> None:
    verifier = ScriptedVerifier()

    async def before(index: int) -> None:
        if index == 1:
            verifier.model = replace(MODEL, name="another")
            raise Unavailable("killed")

    verifier.before = before
    with pytest.raises(Unavailable, match="another model"):
        await run(request(), ScriptedDrafter(), verifier)
    assert not verifier.live
