"""However a request ends, it is counted once, with what was decoded."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

import pytest
from tokenizers import Tokenizer

from deployments.config import model_path
from deployments.ingress.stream.ended import Ended
from deployments.ingress.stream.sse import Stops, deltas
from foredraft.errors import Unavailable
from foredraft.types import Committed, FinishReason, Origin
from orchestrator.report import PLAIN, RoundStats, StatsAccumulator
from orchestrator.request import StepEvent, Summary

TOKENIZER = Tokenizer.from_file(model_path("models/embedded/tokenizer/tokenizer.json"))
IDS = TOKENIZER.encode("def area(width):").ids


async def events(fails: bool = False) -> AsyncGenerator[StepEvent | Summary]:
    stats = StatsAccumulator(PLAIN)
    for number, token in enumerate(IDS):
        step = StepEvent((Committed(token, Origin.PLAIN),), RoundStats(number, 0, 0))
        stats.add(step.tokens, step.stats)
        yield step
    if fails:
        raise Unavailable("lost")
    yield Summary(FinishReason.LENGTH, stats.report(1.0, 7, 0))


async def decode(stop: str | None = None, taken: int = 1000) -> list[Ended]:
    counted: list[Ended] = []
    stops = Stops(() if stop is None else (stop,))
    async with aclosing(deltas(events(), TOKENIZER, stops, PLAIN, counted.append)) as stream:
        async for _ in stream:
            taken -= 1
            if not taken:
                break
            assert not counted
    return counted


async def test_a_request_at_its_own_end() -> None:
    [ended] = await decode()
    assert (ended.tokens, ended.report.verifier_moves) == (len(IDS), 7)
    assert (ended.finish, ended.first_tokens) == (FinishReason.LENGTH, 1)
    assert ended.first_token_s is not None and 0 <= ended.first_token_s <= ended.seconds


async def test_a_request_that_a_stop_string_ended() -> None:
    [ended] = await decode("area")
    assert 0 < ended.tokens < len(IDS)
    assert ended.finish is FinishReason.STOP


async def test_a_request_that_the_client_left() -> None:
    [ended] = await decode(taken=2)
    assert (ended.tokens, ended.finish) == (2, None)


async def test_a_request_that_failed() -> None:
    counted: list[Ended] = []
    with pytest.raises(Unavailable):
        async for _ in deltas(events(True), TOKENIZER, Stops(), PLAIN, counted.append):
            pass
    assert [(ended.tokens, ended.finish) for ended in counted] == [(len(IDS), None)]


async def test_rounds_that_are_read_together_are_one_event() -> None:
    async def burst() -> AsyncGenerator[StepEvent | Summary]:
        async for event in events():
            more = isinstance(event, StepEvent) and event.stats.round > 1
            yield replace(event, more=True) if more else event

    found = [delta async for delta in deltas(burst(), TOKENIZER, Stops(), PLAIN, lambda _: None)]
    assert [len(delta.tokens) for delta in found] == [1, 1, len(IDS) - 2]
    assert "".join(delta.text for delta in found) == "def area(width):"
    assert [delta.finish_reason for delta in found] == [None, None, FinishReason.LENGTH]
