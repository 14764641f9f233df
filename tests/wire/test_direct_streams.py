"""Direct rounds on the verifier's stream: orders, drafters that are named, and what is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import grpc
import pytest

from foredraft.codec import lease as direct_codec
from foredraft.codec import records as codec
from foredraft.errors import CorruptModelOutput, InvalidRequest
from foredraft.lease import Direct, DirectEnded, DirectFault, DirectRound, DraftSource
from foredraft.limits import MAX_DIRECT_ROUNDS
from foredraft.types import (
    Base,
    DraftBlock,
    DraftOpen,
    Proposal,
    SamplingParams,
    Verdict,
    VerifyOpen,
)
from foredraft.v1 import verifier_pb2, verifier_pb2_grpc
from tests.support.direct_pair import (
    PROMPT,
    VOCAB,
    drafter,
    pair,
    until,
)
from tests.support.verifiers import CountingModel, opening, round_after
from verifier_service import server as verifier_server
from verifier_service.client import VerifierClient, VerifierStream


async def test_another_drafter_is_asked_from_the_next_draft_on() -> None:
    async with pair() as both:
        first, second = both.drafters.servers[0], await drafter()
        both.drafters.servers.append(second)
        async with stream_of(both.verifiers.servers[0]) as stream:
            await stream.attach(source(first.port))
            await stream.allow(Direct(1, 200, 1, 1_000_000, 0))
            await stream.next_direct()
            await stream.attach(source(second.port))
            await until(lambda: second.stats()["blocks"] > 0)
            assert first.stats()["streams"] == 0
            while isinstance(told := await stream.next_direct(), DirectRound):
                pass
            assert told == DirectEnded(1)


def source(port: int) -> DraftSource:
    draft_open = DraftOpen("s", (), SamplingParams(), Proposal.COUPLED, 60)
    return DraftSource(f"127.0.0.1:{port}", draft_open)


@asynccontextmanager
async def stream_of(server: verifier_server.VerifierServer) -> AsyncIterator[VerifierStream]:
    client = VerifierClient(f"127.0.0.1:{server.port}")
    yield await client.open(opening(PROMPT))
    await client.close()


async def test_an_order_replaces_the_one_before_and_is_answered_once() -> None:
    async with pair() as both:
        port = both.drafters.servers[0].port
        async with stream_of(both.verifiers.servers[0]) as stream:
            await stream.attach(source(port))
            await stream.allow(Direct(1, 3, 4, 1_000_000, 0))
            rounds = [await stream.next_direct() for _ in range(3)]
            assert [told.left for told in rounds] == [1, 0, 0]
            assert [told.block.base.round for told in rounds] == [0, 1, 2]
            assert await stream.next_direct() == DirectEnded(1)
            await stream.allow(Direct(2, MAX_DIRECT_ROUNDS, 4, 1_000_000, 3))
            first = await stream.next_direct()
            assert isinstance(first, DirectRound) and first.block.base.round == 3
            await stream.allow(Direct(3, 0, 1, 1, 0))
            while isinstance(told := await stream.next_direct(), DirectRound):
                pass
            assert told == DirectEnded(3)


async def test_rounds_and_direct_rounds_alternate_on_one_stream() -> None:
    async with pair() as both:
        port = both.drafters.servers[0].port
        async with stream_of(both.verifiers.servers[0]) as stream:
            asked = round_after(PROMPT, (6, 7, 9))
            verdict = await stream.verify(asked)
            assert await stream.verify(asked) == verdict
            await stream.attach(source(port))
            await stream.allow(Direct(1, 1, 4, 1_000_000, 1))
            told = await stream.next_direct()
            assert isinstance(told, DirectRound)
            assert told.block.tokens[:2] == (9, 10) and told.verdict.accepted == 2
            assert await stream.next_direct() == DirectEnded(1)
            text = (*PROMPT, 6, 7, 8, 9, 10, 11)
            assert (await stream.verify(round_after(text, number=2))).next_tokens == (12,)


async def test_a_round_while_direct_rounds_are_under_way_ends_the_session() -> None:
    async with pair() as both:
        port = both.drafters.servers[0].port
        async with stream_of(both.verifiers.servers[0]) as stream:
            await stream.attach(source(port))
            await stream.allow(Direct(1, 9, 4, 1_000_000, 0))
            with pytest.raises((InvalidRequest, CorruptModelOutput)):
                while True:
                    await stream.verify(round_after(PROMPT))


@pytest.mark.parametrize(
    ("where", "fault"),
    [("127.0.0.1:1", DirectFault.LOST), (None, DirectFault.UNSUPPORTED)],
)
async def test_a_drafter_that_cannot_be_asked_is_said(
    where: str | None, fault: DirectFault
) -> None:
    async with pair() as both, stream_of(both.verifiers.servers[0]) as stream:
        if where:
            await stream.attach(replace(source(1), address=where))
        await stream.allow(Direct(1, 9, 4, 5_000_000, 0))
        assert await stream.next_direct() == DirectEnded(1, fault)
        assert (await stream.verify(round_after(PROMPT))).next_tokens == (6,)


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"direct": {"order": 1, "rounds": 257, "num_tokens": 1, "deadline_us": 1}}, "rounds"),
        ({"direct": {"order": 1, "rounds": 1, "num_tokens": 0, "deadline_us": 1}}, "num_tokens"),
        ({"direct": {"order": 1, "rounds": 1, "num_tokens": 1}}, "deadline_us"),
        ({"drafter": {"address": "http://127.0.0.1:1"}}, "drafter.address"),
        ({"drafter": {"address": "unix:/tmp/socket"}}, "drafter.address"),
        ({"drafter": {"address": "a" * 300 + ":1"}}, "drafter.address"),
    ],
)
async def test_a_bad_order_names_its_field(message: dict[str, object], param: str) -> None:
    async with pair() as both:
        address = f"127.0.0.1:{both.verifiers.servers[0].port}"
        opened = verifier_pb2.VerifyRequest(open=codec.verify_open_to_pb(opening(PROMPT)))
        bad = verifier_pb2.VerifyRequest(**message)  # type: ignore[arg-type]
        async with grpc.aio.insecure_channel(address) as channel:
            call = verifier_pb2_grpc.VerifierServiceStub(channel).Verify(iter([opened, bad]))
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                async for _ in call:
                    pass
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert param in dict(caught.value.trailing_metadata())["foredraft-param"]
        await until(lambda: both.gauges() == 0)


class LyingVerifier(verifier_pb2_grpc.VerifierServiceServicer):
    """Tells of one direct round, as `lie` makes it, and then that nothing is under way."""

    def __init__(self, lie: Callable[[DirectRound], DirectRound]) -> None:
        self.lie = lie

    async def Verify(self, requests, context):  # type: ignore[no-untyped-def]
        opened: VerifyOpen = codec.verify_open_from_pb((await anext(requests)).open)
        info = codec.model_to_pb(CountingModel(vocab=VOCAB).info)
        yield verifier_pb2.VerifyResponse(opened={"model": info})
        base = Base("s", 0, len(opened.prefix), 1)
        block = DraftBlock(base, (6, 7), generated_len=2)
        told = self.lie(DirectRound(block, Verdict(base, 1, (8,)), 2, 0))
        yield verifier_pb2.VerifyResponse(direct_round=direct_codec.direct_round_to_pb(told))
        async for _ in requests:
            pass


@pytest.mark.parametrize(
    "lie",
    [
        lambda t: replace(t, num_tokens=1),
        lambda t: replace(t, block=replace(t.block, tokens=(6, VOCAB))),
        lambda t: replace(t, block=replace(t.block, parents=(0, -1))),
        lambda t: replace(t, verdict=replace(t.verdict, accepted=3)),
        lambda t: replace(t, verdict=replace(t.verdict, next_tokens=(VOCAB,))),
        lambda t: replace(t, verdict=replace(t.verdict, base=Base("s", 1, 3, 1))),
    ],
)
async def test_the_client_believes_no_direct_round_that_the_contract_excludes(
    lie: Callable[[DirectRound], DirectRound],
) -> None:
    server = grpc.aio.server()
    verifier_pb2_grpc.add_VerifierServiceServicer_to_server(LyingVerifier(lie), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    client = VerifierClient(f"127.0.0.1:{port}")
    stream = await client.open(opening(PROMPT))
    with pytest.raises(CorruptModelOutput):
        await stream.next_direct()
    await client.close()
    await server.stop(None)
