"""The drafter over real gRPC in this process, with a scripted model."""

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from drafter_service.batcher import Batcher
from drafter_service.client import DrafterClient
from drafter_service.config import DrafterConfig
from drafter_service.server import SERVICE, serve, serve_engine
from foredraft.codec import drafter as drafter_codec
from foredraft.errors import (
    InvalidRequest,
    Overloaded,
    PrefixMismatch,
    Unavailable,
    WeightsError,
)
from foredraft.messages import DraftBlock, DraftOpened
from foredraft.types import Guess, Proposal, SamplingParams
from foredraft.v1 import drafter_pb2, drafter_pb2_grpc
from tests.support.drafters import (
    INFO,
    Gated,
    ScriptedLM,
    asking,
    asking_ahead,
    counting,
    engine_of,
    opening,
)
from tests.support.waiting import DEADLINE_S, eventually

PREFIX = (3, 4, 5)


@asynccontextmanager
async def serving(model=None, max_sessions=8, **settings):
    model = model or ScriptedLM(counting)
    config = DrafterConfig(model=Path("unused"), **settings)
    batcher = Batcher(lambda: engine_of(model, max_sessions), config.max_queue)
    server = await serve_engine(batcher, config)
    try:
        async with DrafterClient(f"127.0.0.1:{server.port}") as client:
            yield server, client
    finally:
        await server.stop()


def tokens_after(last, count):
    return tuple(1 + (last + j) % 15 for j in range(count))


async def gone(server, name, value):
    """Wait until a gauge has a value."""
    await eventually(lambda: server.stats()[name] == value)


async def test_one_session():
    async with serving() as (server, client):
        stream = await client.open(opening("s", PREFIX))
        assert stream.opened == DraftOpened(INFO, 8)
        block = await stream.propose(asking("s", PREFIX, 3, 4))
        assert isinstance(block, DraftBlock)
        assert block.tokens == tokens_after(5, 4)
        assert block.guesses == (Guess(3, tokens_after(5, 5)[-1], 1.0),)
        assert block.proposal is Proposal.ARGMAX
        assert block.generated_len == 4
        assert block.timings.batch_rows == 3 + 5
        assert server.stats()["streams"] == 1
        await stream.close()
        await stream.close()
        await gone(server, "streams", 0)
        await gone(server, "sessions", 0)


async def test_outstanding_proposals_are_answered_in_order():
    async with serving() as (_, client):
        stream = await client.open(opening("s", PREFIX))
        asks = [asking("s", (*PREFIX, *range(6, 6 + i)), 3 + max(i - 1, 0), 3) for i in range(6)]
        blocks = await asyncio.gather(*(stream.propose(ask) for ask in asks))
        assert [b.base for b in blocks] == [a.base for a in asks]
        assert [b.tokens for b in blocks] == [tokens_after(5 + i, 3) for i in range(6)]


async def test_what_a_draft_was_drawn_from_travels_with_it():
    async with serving() as (_, client):
        sampling = SamplingParams(temperature=1.5, seed=4)
        request = opening("s", PREFIX, proposal=Proposal.SAMPLED, sampling=sampling)
        stream = await client.open(request)
        block = await stream.propose(asking("s", PREFIX, 3, 4))
        assert block.proposal is Proposal.SAMPLED
        assert len(block.q) == len(block.tokens)
        assert [sum(q.weights) for q in block.q] == [1 << 16] * len(block.tokens)


async def test_a_block_may_be_empty():
    async with serving() as (_, client):
        stream = await client.open(opening("s", PREFIX, proposal=Proposal.LOOKUP))
        block = await stream.propose(asking("s", PREFIX, 3, 4))
        assert (block.tokens, block.generated_len, block.guesses) == ((), 0, ())
        text = (*PREFIX, 3, 4)
        block = await stream.propose(asking("s", text, 3, 4))
        assert block.tokens == (5, 3, 4)


async def test_a_method_that_the_drafter_lacks_is_refused_by_name():
    async with serving(ScriptedLM(counting, partial_blocks=False)) as (server, client):
        with pytest.raises(InvalidRequest) as caught:
            await client.open(opening("s", PREFIX, steps=2))
        assert caught.value.param == "params.steps"
        await gone(server, "sessions", 0)


async def test_a_repeated_proposal_gets_the_same_block():
    async with serving() as (_, client):
        stream = await client.open(opening("s", PREFIX))
        ask = asking("s", PREFIX, 3, 3)
        first, second = await asyncio.gather(stream.propose(ask), stream.propose(ask))
        assert first.tokens == second.tokens


async def test_a_cancelled_proposal_leaves_the_stream_usable():
    model = Gated()
    async with serving(model) as (_, client):
        stream = await client.open(opening("s", PREFIX))
        late = asyncio.create_task(stream.propose(asking("s", (*PREFIX, 6), 3, 3)))
        await asyncio.to_thread(model.inside.wait, DEADLINE_S)
        # The write ends a moment after the server has the message.
        await eventually(lambda: not stream._sending.locked())
        late.cancel()
        await asyncio.gather(late, return_exceptions=True)
        model.gate.set()
        # The cancelled one was named too, so this keeps four tokens of it.
        block = await stream.propose(asking("s", (*PREFIX, 6, 7), 4, 3))
        assert block.tokens == tokens_after(7, 3)


async def test_closing_fails_what_was_sent_and_what_waits_to_be_sent():
    async with serving() as (_, client):
        stream = await client.open(opening("s", PREFIX))
        ask = asking("s", (*PREFIX, 6), 3, 3)
        asked = [asyncio.create_task(stream.propose(ask)) for _ in range(3)]
        await asyncio.sleep(0)  # one is being written, the others wait for it
        await stream.close()
        async with asyncio.timeout(DEADLINE_S):
            answers = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(answer) for answer in answers] == [Unavailable] * 3


async def test_sixteen_sessions_on_four_cache_slots():
    async with serving(max_sessions=16) as (server, client):

        async def session(i):
            prefix = (1 + i % 14,)
            stream = await client.open(opening(f"s{i}", prefix))
            for _ in range(4):
                block = await stream.propose(asking(f"s{i}", prefix, len(prefix), 3))
                assert block.tokens == tokens_after(prefix[-1], 3)
                longer = (*prefix, *block.tokens[:2])
                block = await stream.propose(asking(f"s{i}", longer, len(prefix), 3))
                assert block.tokens == tokens_after(longer[-1], 3)
                prefix = longer
            await stream.close()

        await asyncio.gather(*(session(i) for i in range(16)))
        assert server.stats()["evictions"] > 0
        await gone(server, "sessions", 0)


@pytest.mark.parametrize(
    ("ask", "error", "param"),
    [
        (asking("s", (3, 4, 6), 3, 2), PrefixMismatch, None),
        (asking("s", (*PREFIX, 77), 3, 2), InvalidRequest, "append"),
        (asking("s", PREFIX, 3, 9), InvalidRequest, "num_tokens"),
        (asking("s", (*PREFIX, 1), 4, 2), InvalidRequest, "keep_len"),
        (asking("t", PREFIX, 3, 2), PrefixMismatch, None),
    ],
)
async def test_a_bad_proposal_ends_its_session_and_no_other(ask, error, param):
    async with serving() as (server, client):
        bad, good = [await client.open(opening(n, PREFIX)) for n in ("s", "good")]
        with pytest.raises(error) as caught:
            await bad.propose(ask)
        assert caught.value.param == param
        with pytest.raises(error):
            await bad.propose(asking("s", PREFIX, 3, 2))
        block = await good.propose(asking("good", PREFIX, 3, 2))
        assert block.tokens == tokens_after(5, 2)
        await gone(server, "streams", 1)
        again = await client.open(opening("s", PREFIX))
        assert (await again.propose(asking("s", PREFIX, 3, 2))).tokens == tokens_after(5, 2)


async def test_a_refused_open_says_why():
    async with serving(max_sessions=1) as (_, client):
        with pytest.raises(InvalidRequest) as caught:
            await client.open(opening("s", (99,)))
        assert caught.value.param == "prefix"
        await client.open(opening("s", PREFIX))
        with pytest.raises(Overloaded):
            await client.open(opening("t", PREFIX))


async def test_the_same_session_id_may_open_again_before_its_old_stream_ends():
    async with serving() as (_, client):
        old = await client.open(opening("s", PREFIX))
        new = await client.open(opening("s", (*PREFIX, 6)))
        assert (await new.propose(asking("s", (*PREFIX, 6), 4, 2))).tokens == tokens_after(6, 2)
        assert (await old.propose(asking("s", PREFIX, 3, 2))).tokens == tokens_after(5, 2)


async def test_draining_is_said_and_new_sessions_are_refused():
    async with serving() as (server, client):
        stream = await client.open(opening("s", PREFIX))
        draining = asyncio.create_task(server.drain(5))
        await eventually(lambda: stream.draining)
        assert (await stream.propose(asking("s", PREFIX, 3, 2))).tokens == tokens_after(5, 2)
        with pytest.raises(Unavailable):
            await client.open(opening("t", PREFIX))
        await stream.close()
        await asyncio.wait_for(draining, DEADLINE_S)


async def test_a_lost_server_is_unavailable():
    model = Gated()
    async with serving(model) as (server, client):
        stream = await client.open(opening("s", PREFIX))
        waiting = asyncio.create_task(stream.propose(asking("s", PREFIX, 3, 2)))
        await asyncio.to_thread(model.inside.wait, DEADLINE_S)
        stopping = asyncio.create_task(server.stop())
        with pytest.raises(Unavailable):
            await asyncio.wait_for(waiting, DEADLINE_S)
        with pytest.raises(Unavailable):
            await client.open(opening("t", PREFIX))
        model.gate.set()
        await stopping


async def test_a_client_that_vanishes_frees_its_session():
    async with serving() as (server, _):
        client = DrafterClient(f"127.0.0.1:{server.port}")
        stream = await client.open(opening("s", PREFIX))
        await stream.propose(asking("s", PREFIX, 3, 2))
        await client.close()
        await gone(server, "sessions", 0)


async def test_health_reflection_and_the_first_message():
    async with (
        serving() as (server, _),
        grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        health = health_pb2_grpc.HealthStub(channel)
        for name in ("", SERVICE):
            answer = await health.Check(health_pb2.HealthCheckRequest(service=name))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        wrong = drafter_codec.draft_open_to_pb(opening("s", PREFIX))
        wrong.protocol = 9
        early = drafter_codec.propose_to_pb(asking("s", PREFIX, 3, 2))
        for message, param in (
            (drafter_pb2.DraftRequest(propose=early), "open"),
            (drafter_pb2.DraftRequest(open=wrong), "protocol"),
        ):
            call = drafter_pb2_grpc.DrafterServiceStub(channel).Draft()
            await call.write(message)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call.read()
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert caught.value.trailing_metadata()["foredraft-param"] == param


async def test_a_model_that_cannot_be_loaded_is_a_weights_error(tmp_path):
    with pytest.raises(WeightsError):
        await serve(DrafterConfig(model=tmp_path / "missing"))
    with pytest.raises(WeightsError):
        await serve(DrafterConfig(model=tmp_path))


async def test_blocks_for_predicted_outcomes_come_in_one_answer():
    async with serving() as (_, client):
        stream = await client.open(opening("s", PREFIX))
        first, ahead, second = await asyncio.gather(
            stream.propose(asking("s", PREFIX, 3, 2)),
            stream.propose_ahead(asking_ahead("s", PREFIX, ((6, 7), (9,)), 2)),
            stream.propose(asking("s", (*PREFIX, 6), 3, 2)),
        )
        assert (first.tokens, second.tokens) == (tokens_after(5, 2), tokens_after(6, 2))
        assert all(block.tokens for block in ahead) and len(ahead) <= 1
        alone = await stream.propose_ahead(asking_ahead("s", PREFIX, ((6, 7), (9,)), 2))
        assert [block.tokens for block in alone] == [tokens_after(7, 2)]
        assert alone[0].base.prefix_len == len(PREFIX) + 2
        with pytest.raises(InvalidRequest):
            await stream.propose_ahead(asking_ahead("s", PREFIX, ((99,),), 2))
