"""Streams of texts over real gRPC: one message and one forward pass for all, found by hash."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from drafter_service.texts.client import TextsClient, TextsStream
from foredraft.codec import texts as codec
from foredraft.decoding.prefix import hash_prefix
from foredraft.errors import CorruptModelOutput, ForedraftError, InvalidRequest, Unavailable
from foredraft.texts import KnownText, ProposeTexts, Text, TextsOpen
from foredraft.types import Proposal, SamplingParams
from foredraft.v1 import drafter_pb2 as pb
from foredraft.v1 import drafter_pb2_grpc
from tests.support.drafters import INFO, ScriptedLM, counting
from tests.support.lying_proxy import lying
from tests.support.waiting import eventually
from tests.wire.test_drafter import gone, serving, tokens_after

COUNT = 4


def known(*tokens: int) -> KnownText:
    return KnownText(len(tokens), hash_prefix(tokens))


def whole(*tokens: int) -> Text:
    return Text(None, tokens)


@asynccontextmanager
async def opened(address: str, max_len: int = 60) -> AsyncIterator[TextsStream]:
    async with TextsClient(address) as client:
        yield await client.open(Proposal.ARGMAX, max_len)


@asynccontextmanager
async def drafting(**settings: Any) -> AsyncIterator[tuple[Any, TextsStream]]:
    async with (
        serving(**settings) as (server, _),
        opened(f"127.0.0.1:{server.port}") as stream,
    ):
        yield server, stream


async def paths(
    stream: TextsStream, *texts: Text, ended: Sequence[KnownText] = ()
) -> list[tuple[int, ...] | None]:
    """The tokens behind each text, None where it is unknown."""
    drafts = await stream.propose(ProposeTexts(texts, COUNT, tuple(ended)))
    return [None if draft.unknown or not draft.block else draft.block.tokens for draft in drafts]


async def test_texts_are_drafted_for_in_one_pass_and_found_by_their_hash() -> None:
    model = ScriptedLM(counting)
    async with drafting(model=model) as (server, stream):
        assert stream.opened.model == INFO and stream.opened.max_texts == 256
        found = await paths(stream, whole(3, 4, 5), whole(7, 8))
        assert found == [tokens_after(5, COUNT), tokens_after(8, COUNT)]
        before = len(model.passes)
        # In another order, each with what it grew by.
        texts = Text(known(7, 8), (9, 2)), Text(known(3, 4, 5), (6,))
        assert await paths(stream, *texts) == [tokens_after(2, COUNT), tokens_after(6, COUNT)]
        [one] = model.passes[before:]
        assert sorted(len(request.tokens) for request in one) == [1, 2]
        assert server.stats()["sessions"] == 2 and server.stats()["streams"] == 1
    await gone(server, "sessions", 0)


async def test_a_text_that_did_not_grow_and_equal_texts_are_found() -> None:
    async with drafting() as (server, stream):
        assert await paths(stream, whole(3, 4), whole(3, 4)) == [tokens_after(4, COUNT)] * 2
        again = Text(known(3, 4), ())
        assert await paths(stream, again, again) == [tokens_after(4, COUNT)] * 2
        # There are two of it, not three.
        assert (await paths(stream, again, again, again))[2] is None
        assert server.stats()["sessions"] == 2


async def test_a_text_that_is_not_known_is_no_error() -> None:
    async with drafting() as (_, stream):
        await paths(stream, whole(3, 4))
        for lost in (known(9, 9), known(3), KnownText(3, known(3, 4).hash)):
            found = await paths(stream, Text(lost, (5,)), Text(known(3, 4), ()))
            assert found == [None, tokens_after(4, COUNT)]


async def test_the_least_recent_texts_and_those_that_ended_are_forgotten() -> None:
    async with drafting(max_texts=2) as (server, stream):
        await paths(stream, whole(1, 2), whole(2, 3))
        await paths(stream, Text(known(1, 2), (4,)), whole(5, 6))
        await gone(server, "sessions", 2)
        assert await paths(stream, Text(known(2, 3), ())) == [None]
        await paths(stream, Text(known(5, 6), ()), ended=[known(1, 2, 4), known(9)])
        await gone(server, "sessions", 1)


async def test_where_there_is_no_room_a_text_has_no_draft_and_others_have() -> None:
    async with drafting(max_sessions=1) as (_, stream):
        found = await paths(stream, whole(3, 4), whole(7, 8))
        assert sorted(found, key=bool) == [None, tokens_after(4, COUNT)]


async def test_sampled_texts_keep_their_own_noise() -> None:
    async with serving() as (server, _), TextsClient(f"127.0.0.1:{server.port}") as client:
        stream = await client.open(Proposal.SAMPLED, 60)
        for seed in (1, 2):
            sampling = SamplingParams(temperature=1.5, seed=seed)
            request = ProposeTexts((Text(None, (3, 4), sampling),) * 2, COUNT)
            one, other = await stream.propose(request)
            assert one.block is not None and other.block is not None
            assert one.block.tokens == other.block.tokens
            assert len(one.block.q) == len(one.block.tokens)


@pytest.mark.parametrize(
    ("request_", "param"),
    [
        (ProposeTexts((), COUNT), "texts length"),
        (ProposeTexts((whole(),), COUNT), "texts length in tokens"),
        (ProposeTexts((whole(*[1] * 61),), COUNT), "texts length in tokens"),
        (ProposeTexts((whole(3, 99),), COUNT), "prefix"),
        (ProposeTexts((whole(3),), 0), "num_tokens"),
        (ProposeTexts((whole(3),), 200), "num_tokens"),
        (ProposeTexts((whole(3),), 1, (known(1),) * 300), "ended length"),
        (ProposeTexts((Text(None, (3,), SamplingParams(-1.0)),), 1), "temperature"),
    ],
)
async def test_what_is_out_of_bounds_ends_the_stream_and_frees_it(
    request_: ProposeTexts, param: str
) -> None:
    async with drafting() as (server, stream):
        await paths(stream, whole(3, 4))
        with pytest.raises(InvalidRequest) as caught:
            await stream.propose(request_)
        assert caught.value.param == param
        await gone(server, "sessions", 0)
        await gone(server, "streams", 0)


@pytest.mark.parametrize(
    ("opening", "param"),
    [
        (TextsOpen(Proposal.ARGMAX, 65), "max_len"),
        (TextsOpen(Proposal.ARGMAX, 0), "max_len"),
    ],
)
async def test_an_open_out_of_bounds_is_refused(opening: TextsOpen, param: str) -> None:
    async with serving() as (server, _):
        with pytest.raises(InvalidRequest) as caught:
            async with opened(f"127.0.0.1:{server.port}", opening.max_len):
                pass
        assert caught.value.param == param


async def test_only_proposals_follow_an_open() -> None:
    async with serving() as (server, _):
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            opening = pb.DraftTextsRequest(
                open=codec.texts_open_to_pb(TextsOpen(Proposal.ARGMAX, 9))
            )
            for messages in ([opening, opening], [pb.DraftTextsRequest()]):
                call = drafter_pb2_grpc.DrafterServiceStub(channel).DraftTexts(iter(messages))
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    _ = [answer async for answer in call]
                assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        await gone(server, "streams", 0)


async def test_a_draining_drafter_asks_the_stream_to_move() -> None:
    async with drafting() as (server, stream):
        draining = asyncio.create_task(server.drain(20))
        while not stream.draining:
            await paths(stream, whole(3, 4))
        await stream.close()
        await draining


async def test_a_call_that_was_cancelled_leaves_nothing_behind() -> None:
    async with drafting() as (server, stream):
        asking = asyncio.create_task(paths(stream, whole(3, 4), whole(5, 6)))
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait([asking])
        await stream.close()
        await gone(server, "sessions", 0)
        with pytest.raises(ForedraftError):
            await paths(stream, whole(3, 4))


async def test_a_drafter_that_ends_is_unavailable() -> None:
    async with drafting() as (server, stream):
        await paths(stream, whole(3, 4))
        await server.stop()
        with pytest.raises(Unavailable):
            await paths(stream, whole(3, 4))


def _fewer(drafts: Any) -> None:
    del drafts.drafts[-1]


def _longer(drafts: Any) -> None:
    drafts.drafts[0].block.tokens.append(1)
    del drafts.drafts[0].block.expected[:]


def _outside(drafts: Any) -> None:
    drafts.drafts[0].block.tokens[0] = 1 << 20


def _elsewhere(drafts: Any) -> None:
    drafts.drafts[0].block.base.prefix_len += 1


@pytest.mark.parametrize("lie", [_fewer, _longer, _outside, _elsewhere])
async def test_a_drafter_that_lies_is_caught(lie: Any) -> None:
    def change(message: Any) -> Any:
        if isinstance(message, pb.DraftTextsResponse) and message.HasField("drafts"):
            lie(message.drafts)
        return message

    async with (
        serving() as (server, _),
        lying(server.port, "drafter", answers=change) as address,
        opened(address) as stream,
    ):
        with pytest.raises(CorruptModelOutput):
            await paths(stream, whole(3, 4), whole(5, 6))
    await eventually(lambda: server.stats()["streams"] == 0)
