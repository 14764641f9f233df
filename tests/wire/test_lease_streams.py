"""Leases on the verifier's stream: grants, drafters that are named, and what is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import grpc
import pytest

from foredraft.codec import common as common_codec
from foredraft.codec import lease as lease_codec
from foredraft.codec import verifier as verifier_codec
from foredraft.errors import CorruptModelOutput, InvalidRequest
from foredraft.lease import DraftSource, Grant, LeaseEnded, LeaseFault, LedRound
from foredraft.limits import MAX_LED_ROUNDS
from foredraft.messages import DraftBlock, DraftOpen, Verdict, VerifyOpen
from foredraft.types import Base, Proposal, SamplingParams
from foredraft.v1 import verifier_pb2, verifier_pb2_grpc
from tests.support.lease_pair import (
    PROMPT,
    VOCAB,
    drafter,
    pair,
)
from tests.support.verifiers import CountingModel, opening, round_after
from tests.support.waiting import eventually
from verifier_service import server as verifier_server
from verifier_service.client import VerifierClient, VerifierStream


async def test_another_drafter_is_asked_from_the_next_draft_on() -> None:
    async with pair() as both:
        first, second = both.drafters.servers[0], await drafter()
        both.drafters.servers.append(second)
        async with stream_of(both.verifiers.servers[0]) as stream:
            await stream.use_drafter(source(first.port))
            await stream.grant(Grant(1, 200, 1, 1_000_000, 0))
            await stream.next_led()
            await stream.use_drafter(source(second.port))
            await eventually(lambda: second.stats()["blocks"] > 0)
            assert first.stats()["streams"] == 0
            while isinstance(led := await stream.next_led(), LedRound):
                pass
            assert led == LeaseEnded(1)


def source(port: int) -> DraftSource:
    draft_open = DraftOpen("s", (), SamplingParams(), Proposal.COUPLED, 60)
    return DraftSource(f"127.0.0.1:{port}", draft_open)


@asynccontextmanager
async def stream_of(
    server: verifier_server.VerifierServer, new: int = 50
) -> AsyncIterator[VerifierStream]:
    client = VerifierClient(f"127.0.0.1:{server.port}")
    yield await client.open(opening(PROMPT, new=new))
    await client.close()


async def test_a_grant_replaces_the_one_before_and_is_answered_once() -> None:
    async with pair() as both:
        port = both.drafters.servers[0].port
        async with stream_of(both.verifiers.servers[0]) as stream:
            await stream.use_drafter(source(port))
            await stream.grant(Grant(1, 3, 4, 1_000_000, 0))
            rounds = [await stream.next_led() for _ in range(3)]
            assert [led.rounds_left for led in rounds] == [1, 0, 0]
            assert [led.block.base.round for led in rounds] == [0, 1, 2]
            assert await stream.next_led() == LeaseEnded(1)
            await stream.grant(Grant(2, MAX_LED_ROUNDS, 4, 1_000_000, 3))
            first = await stream.next_led()
            assert isinstance(first, LedRound) and first.block.base.round == 3
            await stream.grant(Grant(3, 0, 1, 1, 0))
            while isinstance(led := await stream.next_led(), LedRound):
                pass
            assert led == LeaseEnded(3)


async def test_rounds_and_led_rounds_alternate_on_one_stream() -> None:
    async with pair() as both:
        port = both.drafters.servers[0].port
        async with stream_of(both.verifiers.servers[0]) as stream:
            asked = round_after(PROMPT, (6, 7, 9))
            verdict = await stream.verify(asked)
            assert await stream.verify(asked) == verdict
            await stream.use_drafter(source(port))
            await eventually(lambda: bool(both.drafters.servers[0].stats()["sessions"]))
            await stream.grant(Grant(1, 1, 4, 1_000_000, 1))
            led = await stream.next_led()
            assert isinstance(led, LedRound)
            kept = [led.block.tokens[node] for node in led.verdict.kept]
            assert await stream.next_led() == LeaseEnded(1)
            text = (*PROMPT, 6, 7, 8, *kept, *led.verdict.next_tokens)
            assert text == tuple(range(PROMPT[0], text[-1] + 1))
            following = await stream.verify(round_after(text, number=2))
            assert following.next_tokens == (text[-1] + 1,)


async def test_plain_rounds_are_led_without_a_drafter() -> None:
    async with pair() as both, stream_of(both.verifiers.servers[0]) as stream:
        await stream.grant(Grant(1, 3, 1, 1, 0, plain_passes=2))
        rounds = [await stream.next_led() for _ in range(3)]
        assert [led.verdict.next_tokens for led in rounds] == [(6, 7), (8, 9), (10, 11)]
        assert all(not led.block.tokens and not led.num_draft_tokens for led in rounds)
        assert await stream.next_led() == LeaseEnded(1)


@pytest.mark.parametrize("passes", [1, 2, 3])
async def test_a_lease_of_plain_rounds_ends_when_it_is_revoked(passes: int) -> None:
    async with pair() as both, stream_of(both.verifiers.servers[0], new=180) as stream:
        await stream.grant(Grant(1, MAX_LED_ROUNDS, 1, 1, 0, plain_passes=passes))
        text = list(PROMPT)
        led = await stream.next_led()
        # Of other passes, then none: rounds under way, one of them perhaps begun unasked, count.
        await stream.grant(Grant(2, MAX_LED_ROUNDS, 1, 1, 0, plain_passes=5))
        await stream.grant(Grant(3, 0, 1, 1, 0))
        number = 0
        while isinstance(led, LedRound):
            assert led.block.base.round == number
            text, number = [*text, *led.verdict.next_tokens], number + 1
            led = await stream.next_led()
        assert led == LeaseEnded(3)
        following = await stream.verify(round_after(text, number=number, steps=4))
        text += following.next_tokens
        assert text == [(PROMPT[0] + at) % VOCAB for at in range(len(text))]


async def test_drafts_follow_the_plain_rounds_of_a_lease_once_their_drafter_is_open() -> None:
    # Of so many passes opening a drafter takes a few.
    async with pair() as both, stream_of(both.verifiers.servers[0], new=180) as stream:
        await stream.grant(Grant(1, MAX_LED_ROUNDS, 1, 1, 0, plain_passes=1))
        first = await stream.next_led()
        assert isinstance(first, LedRound) and not first.block.tokens
        await stream.use_drafter(source(both.drafters.servers[0].port))
        await stream.grant(Grant(2, MAX_LED_ROUNDS, 4, 1_000_000, 0))
        led, text = first, [*PROMPT, *first.verdict.next_tokens]
        while isinstance(led, LedRound) and not led.num_draft_tokens:
            led = await stream.next_led()
            assert isinstance(led, LedRound)
            assert led.block.base.prefix_len == len(text)
            kept = [led.block.tokens[node] for node in led.verdict.kept]
            text += [*kept, *led.verdict.next_tokens]
        assert text == [(PROMPT[0] + at) % VOCAB for at in range(len(text))]


async def test_a_round_while_a_lease_is_active_ends_the_session() -> None:
    async with pair() as both:
        port = both.drafters.servers[0].port
        async with stream_of(both.verifiers.servers[0]) as stream:
            await stream.use_drafter(source(port))
            await stream.grant(Grant(1, 9, 4, 1_000_000, 0))
            with pytest.raises((InvalidRequest, CorruptModelOutput)):
                while True:
                    await stream.verify(round_after(PROMPT))


@pytest.mark.parametrize(
    ("where", "fault"),
    [("127.0.0.1:1", LeaseFault.LOST), (None, LeaseFault.UNSUPPORTED)],
)
async def test_a_drafter_that_cannot_be_asked_ends_the_lease(
    where: str | None, fault: LeaseFault
) -> None:
    async with pair() as both, stream_of(both.verifiers.servers[0], new=180) as stream:
        if where:
            await stream.use_drafter(replace(source(1), address=where))
        await stream.grant(Grant(1, MAX_LED_ROUNDS, 4, 5_000_000, 0))
        text = PROMPT
        while isinstance(answer := await stream.next_led(), LedRound):
            # Plainly, for as long as it is not known that the drafter cannot be opened.
            text = (*text, *answer.verdict.next_tokens)
        assert answer == LeaseEnded(1, fault)
        number = len(text) - len(PROMPT)
        following = await stream.verify(round_after(text, number=number))
        assert following.next_tokens == ((6 + number) % VOCAB,)


@pytest.mark.parametrize(
    ("message", "param"),
    [
        (
            {"grant": {"seq": 1, "rounds": 257, "num_draft_tokens": 1, "deadline_us": 1}},
            "grant.rounds",
        ),
        (
            {"grant": {"seq": 1, "rounds": 1, "num_draft_tokens": 0, "deadline_us": 1}},
            "grant.num_draft_tokens",
        ),
        ({"grant": {"seq": 1, "rounds": 1, "num_draft_tokens": 1}}, "grant.deadline_us"),
        ({"draft_source": {"address": "http://127.0.0.1:1"}}, "draft_source.address"),
        ({"draft_source": {"address": "unix:/tmp/socket"}}, "draft_source.address"),
        ({"draft_source": {"address": "a" * 300 + ":1"}}, "draft_source.address"),
    ],
)
async def test_a_bad_grant_names_its_field(message: dict[str, object], param: str) -> None:
    async with pair() as both:
        address = f"127.0.0.1:{both.verifiers.servers[0].port}"
        opened = verifier_pb2.VerifyRequest(open=verifier_codec.verify_open_to_pb(opening(PROMPT)))
        bad = verifier_pb2.VerifyRequest(**message)
        async with grpc.aio.insecure_channel(address) as channel:
            call = verifier_pb2_grpc.VerifierServiceStub(channel).Verify(iter([opened, bad]))
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                async for _ in call:
                    pass
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert param in dict(caught.value.trailing_metadata())["foredraft-param"]
        await eventually(lambda: both.gauges() == 0)


class LyingVerifier(verifier_pb2_grpc.VerifierServiceServicer):
    """Reports one led round, as `lie` makes it, and then nothing more."""

    def __init__(self, lie: Callable[[LedRound], LedRound]) -> None:
        self.lie = lie

    async def Verify(self, requests, context):
        opened: VerifyOpen = verifier_codec.verify_open_from_pb((await anext(requests)).open)
        info = common_codec.model_to_pb(CountingModel(vocab=VOCAB).info)
        yield verifier_pb2.VerifyResponse(opened={"model": info})
        base = Base("s", 0, len(opened.prefix), 1)
        block = DraftBlock(base, (6, 7), generated_len=2)
        led = self.lie(LedRound(block, Verdict(base, 1, (8,)), 2, 0))
        yield verifier_pb2.VerifyResponse(led_round=lease_codec.led_round_to_pb(led))
        async for _ in requests:
            pass


@pytest.mark.parametrize(
    "lie",
    [
        lambda t: replace(t, num_draft_tokens=1),
        lambda t: replace(t, block=replace(t.block, tokens=(6, VOCAB))),
        lambda t: replace(t, block=replace(t.block, parents=(0, -1))),
        lambda t: replace(t, verdict=replace(t.verdict, accepted=3)),
        lambda t: replace(t, verdict=replace(t.verdict, next_tokens=(VOCAB,))),
        lambda t: replace(t, verdict=replace(t.verdict, base=Base("s", 1, 3, 1))),
    ],
)
async def test_the_client_believes_no_led_round_that_the_contract_excludes(
    lie: Callable[[LedRound], LedRound],
) -> None:
    server = grpc.aio.server()
    verifier_pb2_grpc.add_VerifierServiceServicer_to_server(LyingVerifier(lie), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    client = VerifierClient(f"127.0.0.1:{port}")
    stream = await client.open(opening(PROMPT))
    with pytest.raises(CorruptModelOutput):
        await stream.next_led()
    await client.close()
    await server.stop(None)
