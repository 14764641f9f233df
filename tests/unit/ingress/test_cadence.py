"""A smoothed stream has the same tokens, one by one, evenly, and ends as the other one does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from itertools import pairwise

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.ingress.stream.cadence import Pace, single, smoothed
from deployments.ingress.stream.sse import Delta, RoundText
from foredraft.errors import Unavailable
from foredraft.types import Committed, FinishReason, Origin
from orchestrator.report import RoundStats
from orchestrator.request import StepEvent
from tests.support.orchestrator.peers import ScriptedVerifier
from tests.unit.ingress.test_routes import PROMPT, generations, served


def block(number: int, pieces: list[str], held: str = "", end: bool = False) -> Delta:
    tokens = tuple(Committed(100 * number + at, Origin.KEPT) for at in range(len(pieces)))
    event = StepEvent(tokens, RoundStats(number, 0, 0))
    finish = FinishReason.LENGTH if end else None
    text = "".join(pieces) + held
    return Delta(
        text,
        tokens,
        finish,
        {"end": end} if end else None,
        rounds=(RoundText(event, tuple(pieces)),),
    )


@given(st.lists(st.text(max_size=3), max_size=12), st.text(max_size=3), st.booleans())
def test_single_tokens_are_the_delta(pieces: list[str], held: str, end: bool) -> None:
    whole = block(0, pieces, held, end)
    parts = list(single(whole))
    assert "".join(part.text for part in parts) == whole.text
    assert tuple(token for part in parts for token in part.tokens) == whole.tokens
    assert all(len(part.tokens) <= 1 for part in parts)
    assert [part.finish_reason for part in parts[:-1]] == [None] * (len(parts) - 1)
    assert parts[-1].finish_reason is whole.finish_reason
    assert [part.report for part in parts if part.report] == ([{"end": True}] if end else [])
    assert [one for part in parts for one in part.rounds] == list(whole.rounds)


class Time:
    """A clock that sleeping moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)


async def blocks(time: Time, fails: bool = False) -> AsyncGenerator[tuple[int, Delta]]:
    for number in range(4):
        yield 0, block(number, ["a", "b", "c", "d"], end=number == 3 and not fails)
        time.now = max(time.now, 0.1 * (number + 1))
    if fails:
        raise Unavailable("lost")


async def test_tokens_of_a_block_are_spread_over_the_next_ones_time() -> None:
    time, seen = Time(), []
    async for _, delta in smoothed(blocks(time), time, time.sleep):
        seen.append((time.now, delta.text))
    assert "".join(text for _, text in seen) == "abcd" * 4
    assert all(len(text) == 1 for _, text in seen)
    gaps = [later - earlier for (earlier, _), (later, _) in pairwise(seen)]
    # No token waits longer than a block took.
    assert max(gaps) <= 0.1 + 1e-9 and sum(gap > 0 for gap in gaps) > 4


async def test_an_error_comes_behind_the_tokens_before_it() -> None:
    time, seen = Time(), ""
    with pytest.raises(Unavailable):
        async for _, delta in smoothed(blocks(time, fails=True), time, time.sleep):
            seen += delta.text
    assert seen == "abcd" * 4


async def test_closing_closes_the_stream() -> None:
    closed = asyncio.Event()

    async def endless() -> AsyncGenerator[tuple[int, Delta]]:
        try:
            while True:
                yield 0, block(0, ["a"])
                await asyncio.sleep(0)
        finally:
            closed.set()

    stream = smoothed(endless(), Time())
    await anext(stream)
    await stream.aclose()
    assert closed.is_set()


def test_a_pace_is_learnt_and_bounded() -> None:
    pace = Pace()
    assert pace.wait_s(5) == 0.0
    for now in (0.0, 0.1, 0.2):
        pace.arrived(now)
    assert pace.wait_s(4) == pytest.approx(0.025)
    assert pace.wait_s(0) == 0.0
    pace.arrived(100.0)
    assert pace.wait_s(1) <= 0.25


async def test_the_option_changes_no_token() -> None:
    body = {
        "prompt": PROMPT,
        "max_tokens": 24,
        "temperature": 0,
        "stream": True,
        "return_token_ids": True,
    }
    texts = {}
    async with served(generations(ScriptedVerifier())) as url, aiohttp.ClientSession() as http:
        for cadence in ("block", "token"):
            asked = body | {"stream_options": {"cadence": cadence, "include_usage": True}}
            chunks = []
            async with http.post(url, json=asked) as answer:
                async for line in answer.content:
                    if line.startswith(b"data: {"):
                        chunks.append(json.loads(line[6:]))
            tokens = [each["choices"][0]["token_ids"] for each in chunks if each["choices"]]
            texts[cadence] = [token for each in tokens for token in each]
            if cadence == "token":
                assert max(map(len, tokens)) == 1
            assert chunks[-1]["usage"]["completion_tokens"] == 24
        refused = body | {"stream_options": {"cadence": "syllable"}}
        async with http.post(url, json=refused) as answer:
            assert answer.status == 400
            assert (await answer.json())["error"]["param"] == "stream_options.cadence"
    assert texts["block"] == texts["token"]
