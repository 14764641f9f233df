"""Links that take time: later answers, in their order, and the same tokens."""

from __future__ import annotations

import asyncio
import time
from functools import partial

import pytest

from drafter_service.client import DrafterClient
from foredraft.errors import Unavailable
from foredraft.messages import Verdict
from foredraft.rpc.config import LinkConfig
from tests.support.lease_pair import LED, PLAIN_TOKENS, PROMPT, decoded, pair
from tests.support.verifiers import opening, round_after
from verifier_service.client import VerifierClient

LINK = LinkConfig(delay_ms=30, jitter_ms=10)


async def test_messages_are_late_both_ways_and_keep_their_order() -> None:
    async with pair() as both:
        port = both.verifiers.servers[0].port
        async with VerifierClient(f"127.0.0.1:{port}", link=LINK) as client:
            began = time.monotonic()
            stream = await client.open(opening(PROMPT))
            opened = time.monotonic()
            verdict: Verdict = await stream.verify(round_after(PROMPT, steps=4))
            assert opened - began >= 0.06
            assert time.monotonic() - opened >= 0.06
            assert verdict.next_tokens == tuple(PLAIN_TOKENS[:4])
            await stream.close()


@pytest.mark.parametrize("led", [0, 4])
async def test_tokens_are_the_same_over_slow_links(led: int) -> None:
    connect = partial(DrafterClient, link=LinkConfig(delay_ms=5, jitter_ms=2))
    async with pair(connect=connect) as both:
        both.drafters._client = connect
        both.verifiers._client = partial(VerifierClient, link=LinkConfig(delay_ms=3))
        config = LED.model_copy(update={"verifier_led_rounds": led})
        # Long enough for a drafter that opens late, where other tests keep the machine busy.
        tokens, report = await decoded(both, config, new=180)
        assert tokens[: len(PLAIN_TOKENS)] == PLAIN_TOKENS and len(tokens) == 180
        assert report.draft_rounds > 2


async def test_the_end_of_a_stream_is_an_error_as_without_a_delay() -> None:
    async with pair() as both:
        port = both.verifiers.servers[0].port
        async with VerifierClient(f"127.0.0.1:{port}", link=LINK) as client:
            stream = await client.open(opening(PROMPT))
            waiting = asyncio.create_task(stream.verify(round_after(PROMPT)))
            await asyncio.sleep(0)
            await both.verifiers.kill()
            with pytest.raises(Unavailable):
                await waiting
            with pytest.raises(Unavailable):
                await stream.verify(round_after(PROMPT))
            await stream.close()
