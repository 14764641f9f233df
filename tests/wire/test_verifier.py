"""The verifier over gRPC, in one process, with a counting model behind the real engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from foredraft.codec import verifier as verifier_codec
from foredraft.errors import (
    CorruptModelOutput,
    InvalidRequest,
    Overloaded,
    PrefixMismatch,
    Unavailable,
)
from foredraft.messages import VerifyOpen
from foredraft.types import Acceptance, Candidates, SamplingParams
from foredraft.v1 import verifier_pb2, verifier_pb2_grpc
from tests.support.verifiers import VOCAB, CountingModel, make_engine, opening, round_after
from tests.support.waiting import DEADLINE_S, eventually
from verifier_service.client import VerifierClient
from verifier_service.config import VerifierConfig
from verifier_service.runner import Runner
from verifier_service.server import SERVICE, VerifierServer, serve_engine
from verifier_service.targets.engine import VerifierEngine


@asynccontextmanager
async def running(
    make: Callable[[], VerifierEngine] = make_engine,
    *,
    runner: Runner | None = None,
) -> AsyncIterator[tuple[VerifierServer, VerifierClient]]:
    """A server and a client of it."""
    config = VerifierConfig(model=Path(), grace_s=1.0)
    server = await serve_engine(config, runner or Runner(make))
    client = VerifierClient(f"127.0.0.1:{server.port}")
    try:
        yield server, client
    finally:
        await client.close()
        await server.stop()


async def raw(address_port: int, *messages: verifier_pb2.VerifyRequest) -> grpc.aio.AioRpcError:
    """Send messages as they are and return the status that the stream ends with."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{address_port}") as channel:
        call = verifier_pb2_grpc.VerifierServiceStub(channel).Verify(iter(messages))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async for _ in call:
                pass
        return caught.value


async def test_a_session_runs_and_its_end_frees_everything():
    async with running() as (server, client):
        stream = await client.open(opening())
        assert stream.model.vocab_size == VOCAB
        assert not stream.draining
        first = await stream.verify(round_after((1, 2, 3), (4, 5, 9)))
        assert (first.accepted, first.next_tokens) == (2, (6,))
        plain = await stream.verify(round_after(range(1, 7), number=1, steps=3))
        assert plain.next_tokens == (7, 8, 9)
        assert plain.timings.batch_rows == 1
        assert server.stats()["sessions"] == 1
        await stream.close()
        await eventually(lambda: server.stats()["kv_used"] == 0)


async def test_a_duplicate_is_answered_and_a_stale_round_refused():
    async with running() as (_, client):
        stream = await client.open(opening())
        request = round_after((1, 2, 3), (4, 9))
        first = await stream.verify(request)
        assert await stream.verify(request) == first
        with pytest.raises(PrefixMismatch) as caught:
            await stream.verify(round_after((1, 2, 3), (7,)))
        assert caught.value.param == "base"
        with pytest.raises(PrefixMismatch):
            await stream.verify(request)


async def test_open_comes_first_and_once():
    opened = verifier_pb2.VerifyRequest(open=verifier_codec.verify_open_to_pb(opening()))
    asked = verifier_pb2.VerifyRequest(round=verifier_codec.round_to_pb(round_after((1, 2, 3))))
    async with running() as (server, _):
        for messages in ([asked], [opened, opened], [verifier_pb2.VerifyRequest()]):
            error = await raw(server.port, *messages)
            assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        await eventually(lambda: server.stats()["sessions"] == 0)


async def test_another_protocol_is_refused():
    message = verifier_pb2.VerifyRequest(open=verifier_codec.verify_open_to_pb(opening()))
    message.open.protocol = 7
    async with running() as (server, _):
        error = await raw(server.port, message)
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert ("foredraft-param", "protocol") in tuple(error.trailing_metadata())


@pytest.mark.parametrize("prefix", [(1, VOCAB), (), tuple(range(VOCAB)) * 3])
async def test_a_bad_open_names_its_field_and_leaves_nothing(prefix):
    async with running() as (server, client):
        with pytest.raises(InvalidRequest) as caught:
            await client.open(opening(prefix))
        assert caught.value.param in ("prefix", "prefix length")
        assert server.stats()["kv_used"] == 0


async def test_a_tree_is_verified_in_one_round():
    async with running() as (_, client):
        stream = await client.open(opening())
        request = round_after((1, 2, 3), (9, 4, 5, 7, 6), (-1, -1, 1, 1, 2))
        first = await stream.verify(request)
        assert (first.accepted, first.path, first.next_tokens) == (3, (1, 2, 4), (7,))
        assert await stream.verify(request) == first
        plain = await stream.verify(round_after(range(1, 8), number=1, steps=2))
        assert plain.next_tokens == (8, 9)


@pytest.mark.parametrize("parents", [(-1,), (-1, 1), (0, -1), (-1, -2)])
async def test_bad_parents_are_refused(parents):
    async with running() as (_, client):
        stream = await client.open(opening())
        with pytest.raises(InvalidRequest) as caught:
            await stream.verify(round_after((1, 2, 3), (4, 5), parents))
        assert caught.value.param == "parents"


@pytest.mark.parametrize("acceptance", [Acceptance.REJECTION, Acceptance.BLOCK])
async def test_a_rule_and_its_q_go_over_the_wire(acceptance):
    sampling = SamplingParams(temperature=1.0, top_k=1)
    async with running() as (_, client):
        stream = await client.open(opening(sampling=sampling, acceptance=acceptance))
        q = (Candidates((4, 9), (1, 3)), Candidates((8, 5), (1, 1)))
        first = await stream.verify(round_after((1, 2, 3), (4, 8), q=q))
        assert (first.accepted, first.path, first.next_tokens) == (1, (), (5,))
        plain = await stream.verify(round_after((1, 2, 3, 4, 5), number=1))
        assert plain.next_tokens == (6,)
        with pytest.raises(InvalidRequest) as caught:
            await stream.verify(round_after(range(1, 7), (7, 8), (-1, -1), number=2))
        assert caught.value.param == "parents"


@pytest.mark.parametrize("ids", [(VOCAB, 4), (5,), ()])
async def test_a_bad_q_is_refused(ids):
    async with running() as (_, client):
        stream = await client.open(opening(acceptance=Acceptance.REJECTION))
        q = (Candidates(ids, (1,) * len(ids)),)
        with pytest.raises(InvalidRequest) as caught:
            await stream.verify(round_after((1, 2, 3), (4,), q=q))
        assert caught.value.param.startswith("q")


async def test_a_draft_token_out_of_range_ends_only_its_session():
    async with running() as (_, client):
        good, bad = await client.open(opening()), await client.open(opening())
        with pytest.raises(InvalidRequest) as caught:
            await bad.verify(round_after((1, 2, 3), (VOCAB,)))
        assert caught.value.param == "draft"
        assert (await good.verify(round_after((1, 2, 3), (4,)))).accepted == 1


async def test_bad_logits_end_only_their_session():
    model = CountingModel()
    async with running(lambda: make_engine(model)) as (server, client):
        good = await client.open(opening())
        bad = await client.open(opening((9, 2, 3)))
        model.poisoned.add(9)
        results = await asyncio.gather(
            good.verify(round_after((1, 2, 3), (4,))),
            bad.verify(round_after((9, 2, 3), (4,))),
            return_exceptions=True,
        )
        assert results[0].accepted == 1
        assert isinstance(results[1], CorruptModelOutput)
        await eventually(lambda: server.stats()["sessions"] == 1)
        assert server.stats()["corrupted"] == 1


async def test_full_is_refused_until_a_session_ends():
    async with running(lambda: make_engine(max_sessions=1)) as (server, client):
        first = await client.open(opening())
        with pytest.raises(Overloaded):
            await client.open(opening())
        await first.close()
        await eventually(lambda: server.stats()["sessions"] == 0)
        await (await client.open(opening())).close()


async def test_cancelling_a_round_or_an_open_frees_the_session():
    model = CountingModel()
    release = asyncio.Event()
    loop = asyncio.get_running_loop()

    class Slow(CountingModel):
        def forward(self, segments):
            asyncio.run_coroutine_threadsafe(release.wait(), loop).result(DEADLINE_S)
            return super().forward(segments)

    class Noting(Runner):
        opens = 0

        async def open(self, request: VerifyOpen) -> int:
            self.opens += 1
            return await super().open(request)

    model = Slow()
    runner = Noting(lambda: make_engine(model))
    async with running(runner=runner) as (server, client):
        stream = await client.open(opening((1,)))
        waiting = asyncio.create_task(stream.verify(round_after((1,), (2,))))
        await eventually(lambda: server.stats()["queue"] == 1)
        opening_task = asyncio.create_task(client.open(opening((1, 2))))
        await eventually(lambda: runner.opens == 2)
        for task in (waiting, opening_task):
            task.cancel()
        await asyncio.gather(waiting, opening_task, return_exceptions=True)
        await eventually(lambda: server.stats()["queue"] == 0)
        release.set()
        await eventually(lambda: model.pool.available == model.pool.total)
        assert server.stats()["kv_used"] == 0


async def test_draining_asks_sessions_to_move_and_takes_no_new_ones():
    async with running() as (server, client):
        stream = await client.open(opening())
        draining = asyncio.create_task(server.drain())

        async def refused() -> bool:
            try:
                await (await client.open(opening((5,)))).close()
            except Unavailable:
                return True
            return False

        await eventually(refused)
        assert (await stream.verify(round_after((1, 2, 3), (4,)))).accepted == 1
        assert stream.draining
        with pytest.raises(Unavailable):
            await client.open(opening())
        await stream.close()
        await draining
        with pytest.raises(Unavailable):
            await client.open(opening())


async def test_a_lost_server_is_unavailable():
    async with running() as (server, client):
        stream = await client.open(opening())
        await server.stop()
        with pytest.raises(Unavailable):
            await stream.verify(round_after((1, 2, 3)))
        await stream.close()


async def test_a_broken_worker_fails_rounds_and_health():
    class Broken(CountingModel):
        def forward(self, segments):
            raise RuntimeError("out of memory")

    async with running(lambda: make_engine(Broken())) as (server, client):
        server.check_health()
        stream = await client.open(opening((1,)))
        with pytest.raises(Unavailable):
            await stream.verify(round_after((1,)))
        with pytest.raises(Unavailable):
            server.check_health()
        with pytest.raises(Unavailable):
            await client.open(opening())


async def test_a_failing_load_is_the_callers_error():
    def broken() -> VerifierEngine:
        raise InvalidRequest("no such model", param="model")

    with pytest.raises(InvalidRequest, match="no such model"):
        await serve_engine(VerifierConfig(model=Path()), Runner(broken))


async def test_health_is_standard():
    async with (
        running() as (server, _),
        grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        stub = health_pb2_grpc.HealthStub(channel)
        for service in ("", SERVICE):
            answer = await stub.Check(health_pb2.HealthCheckRequest(service=service))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_concurrent_sessions_share_forwards_and_get_what_they_get_alone():
    model = CountingModel()

    async def one(client: VerifierClient, first: int) -> list[int]:
        text = [first, first + 1]
        stream = await client.open(opening(text, session_id=f"s{first}"))
        for number in range(5):
            draft = (text[-1] + 1, text[-1] + 2, text[-1] + number % 2 * 9 + 3)
            request = round_after(text, draft, number=number, session_id=f"s{first}")
            verdict = await stream.verify(request)
            text += [*draft[: verdict.accepted], *verdict.next_tokens]
        await stream.close()
        return text

    async with running(lambda: make_engine(model, max_sessions=16, kv_tokens=4096)) as (_, client):
        texts = await asyncio.gather(*(one(client, first) for first in range(12)))
    for first, text in enumerate(texts):
        assert text == list(range(first, first + len(text)))
        assert len(text) == 2 + 3 * 4 + 2 * 3
    assert max(len(batch) for batch in model.batches) > 1
