"""Closing, cancelling, slow readers and deadlines: both streams end."""

from __future__ import annotations

import asyncio

import pytest

from foredraft.errors import (
    DeadlineExceeded,
)
from foredraft.messages import DraftBlock
from orchestrator.drive.pipeline import generate
from orchestrator.request import StepEvent
from tests.support.orchestrator.peers import (
    ScriptedDrafter,
    ScriptedVerifier,
    request,
)
from tests.support.orchestrator.running import FIXED, run, wrong
from tests.support.waiting import DEADLINE_S, turns


@pytest.mark.parametrize("phase", range(8))
async def test_closing_the_generator_closes_both_streams(phase: int) -> None:
    drafter, verifier = ScriptedDrafter(wrong(at=2, every=2)), ScriptedVerifier()
    events = generate(request(4000), drafter, verifier, FIXED)
    async for event in events:
        assert isinstance(event, StepEvent)
        break
    await turns(phase)
    rounds = len(verifier.rounds)
    await events.aclose()
    assert not drafter.live and not verifier.live
    assert len(verifier.rounds) <= rounds + 1


@pytest.mark.parametrize("stuck", ["drafter", "verifier", "opening", "reader"])
async def test_cancelling_the_reader_closes_both_streams(stuck: str) -> None:
    reached = asyncio.Event()

    async def wait(_: int) -> None:
        reached.set()
        await asyncio.Event().wait()

    async def forever(*_: object) -> DraftBlock:
        await wait(0)
        raise AssertionError

    drafter, verifier = ScriptedDrafter(), ScriptedVerifier()
    if stuck == "drafter":
        drafter.script = forever
    if stuck == "verifier":
        verifier.before = wait
    if stuck == "opening":
        verifier.opening = wait

    async def read() -> None:
        async for _ in generate(request(4000), drafter, verifier, FIXED):
            if stuck == "reader":
                await wait(0)

    reader = asyncio.create_task(read())
    await asyncio.wait_for(reached.wait(), DEADLINE_S)
    await turns()
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    await turns()
    assert not drafter.live and not verifier.live


async def test_decoding_pauses_for_a_slow_reader() -> None:
    drafter, verifier = ScriptedDrafter(), ScriptedVerifier()
    events = generate(request(4000), drafter, verifier, FIXED)
    await anext(events)
    await turns(1000)
    assert FIXED.read_ahead <= len(verifier.rounds) <= FIXED.read_ahead + 3
    await events.aclose()


async def test_a_stream_that_will_not_close_is_not_waited_for() -> None:
    async def stubborn() -> None:
        await asyncio.Event().wait()

    verifier = ScriptedVerifier()
    events = generate(
        request(), ScriptedDrafter(), verifier, FIXED.model_copy(update={"close_timeout_s": 0.02})
    )
    await anext(events)
    verifier.live[0].close = stubborn
    async with asyncio.timeout(DEADLINE_S):
        await events.aclose()


async def test_the_requests_deadline_ends_both_streams() -> None:
    async def before(index: int) -> None:
        if index == 3:
            await asyncio.Event().wait()

    drafter, verifier = ScriptedDrafter(), ScriptedVerifier()
    verifier.before = before
    with pytest.raises(DeadlineExceeded):
        await run(request(4000, timeout_s=0.05), drafter, verifier)
    assert not drafter.live and not verifier.live


async def test_a_verifier_that_does_not_answer_is_left() -> None:
    async def before(index: int) -> None:
        if index == 1:
            await asyncio.Event().wait()

    verifier = ScriptedVerifier()
    verifier.before = before
    quick = FIXED.model_copy(update={"verify_timeout_s": 0.02})
    _, report = await run(request(), ScriptedDrafter(), verifier, quick)
    assert report.verifier_moves == 1
