"""The denoiser over gRPC, in one process, with a table of logits behind the real engine."""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import takewhile
from pathlib import Path

import grpc
import pytest

from denoiser_service.client import DenoiserClient
from denoiser_service.config import DenoiserConfig
from denoiser_service.core.decode import vanilla
from denoiser_service.core.next import Rule
from denoiser_service.core.text import Text
from denoiser_service.runner import Runner
from denoiser_service.server import SERVICE, serve_engine
from foredraft.codec import denoiser as codec
from foredraft.decoding.block_state import MASKED
from foredraft.denoising import Dynamic
from foredraft.errors import (
    CorruptModelOutput,
    InvalidRequest,
    Overloaded,
    PrefixMismatch,
    Unauthenticated,
    Unavailable,
)
from foredraft.v1 import denoiser_pb2, denoiser_pb2_grpc
from orchestrator.config import DenoisingConfig, RetryConfig
from orchestrator.drive.denoised_events import denoised_events
from orchestrator.drive.denoising import denoise
from orchestrator.session.denoise import DenoiseSession
from tests.support.denoiser.paged import PagedTable, advance, make_engine, opening
from tests.support.denoiser.tabular import SLOTS, Tabular, all_successors
from tests.support.waiting import DEADLINE_S, eventually, turns

PROMPT = (1, 0, 2, 1)


@asynccontextmanager
async def running(model=None, token="", **settings):
    """A server and a client of it."""
    model = model or PagedTable()
    config = DenoiserConfig(model=Path(), grace_s=1.0, **settings)
    runner = Runner(lambda: make_engine(model, lambda rule, most: all_successors))
    server = await serve_engine(config, runner, token)
    client = DenoiserClient(f"127.0.0.1:{server.port}", token=token)
    try:
        yield server, client
    finally:
        await client.close()
        await server.stop()


def plain(request):
    """The text without a service and without drafts."""
    text = Text(request.prefix, request.max_new_tokens, frozenset(request.stop_token_ids))
    rule = Rule(request.unmasking, request.sampling.temperature, request.sampling.seed)
    return vanilla(Tabular(), text, rule).tokens


async def raw(port, *messages):
    """Send messages as they are and return the status that the stream ends with."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = denoiser_pb2_grpc.DenoiserServiceStub(channel).Denoise(iter(messages))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async for _ in call:
                pass
        return caught.value


def named(error):
    """The field that a status names."""
    return dict(error.trailing_metadata() or ()).get("foredraft-param")


async def test_a_session_runs_and_its_end_frees_everything():
    async with running() as (server, client):
        request = opening(temperature=1.0, seed=3, unmasking=Dynamic(0.5), drafts=2)
        stream = await client.open(request)
        assert stream.model.block_length == SLOTS and not stream.draining
        first = await stream.advance(advance(PROMPT))
        assert (first.calls, first.accepted) == (1, 0) and first.timings.batch_rows >= SLOTS
        tokens = (*PROMPT[:SLOTS], *first.committed)
        last = await stream.advance(advance(tokens, first.block, 100, number=1))
        assert last.block == () and last.steps == last.calls + last.accepted
        assert (*tokens, *last.committed)[len(PROMPT) :][:7] == plain(request)
        assert server.stats()["sessions"] == 1
        await stream.close()
        await eventually(lambda: server.stats()["kv_used"] == 0)
        assert server.stats()["steps"] == first.steps + last.steps


async def test_a_duplicate_is_answered_and_a_stale_advance_refused():
    async with running() as (_, client):
        stream = await client.open(opening())
        asked = advance(PROMPT)
        first = await stream.advance(asked)
        assert await stream.advance(asked) == first
        with pytest.raises(PrefixMismatch) as caught:
            await stream.advance(replace(asked, calls=2))
        assert caught.value.param == "base"


async def test_open_comes_first_and_once():
    open_ = denoiser_pb2.DenoiseRequest(open=codec.denoise_open_to_pb(opening()))
    asked = denoiser_pb2.DenoiseRequest(advance=codec.advance_to_pb(advance(PROMPT)))
    async with running() as (server, _):
        for messages in ([asked], [open_, open_], [denoiser_pb2.DenoiseRequest()]):
            error = await raw(server.port, *messages)
            assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        await eventually(lambda: server.stats()["sessions"] == 0)


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("protocol", {"protocol": 7}),
        ("session_id", {"session_id": "a\nb"}),
        ("prefix", {"prefix": [1, 9]}),
        ("prefix length", {"prefix": [1] * 61}),
        ("unmasking", {"per_step": None}),
        ("per_step", {"per_step": 0}),
        ("per_step", {"per_step": SLOTS + 1}),
        ("threshold", {"threshold": 1.0}),
        ("threshold", {"threshold": float("nan")}),
        ("max_new_tokens", {"max_new_tokens": 0}),
        ("max_new_tokens", {"max_new_tokens": 1 << 20}),
        ("max_drafts", {"max_drafts": 1 << 31}),
        ("max_drafts", {"max_drafts": 9}),
        ("stop_token_ids", {"stop_token_ids": [99]}),
        ("cache_salt length", {"cache_salt": "x" * 257}),
        ("groups", {"groups": [""]}),
    ],
)
async def test_a_bad_open_names_its_field_and_leaves_nothing(field, changes):
    message = codec.denoise_open_to_pb(opening())
    for name, value in changes.items():
        message.ClearField(name)
        if isinstance(value, list):
            getattr(message, name).extend(value)
        elif value is not None:
            setattr(message, name, value)
    async with running() as (server, _):
        error = await raw(server.port, denoiser_pb2.DenoiseRequest(open=message))
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert named(error) == field
        assert server.stats()["kv_used"] == 0


@pytest.mark.parametrize(
    ("field", "changes"),
    [("calls", {"calls": 0}), ("calls", {"calls": 1 << 31}), ("base", {"calls": 2})],
)
async def test_a_bad_advance_names_its_field(field, changes):
    open_ = denoiser_pb2.DenoiseRequest(open=codec.denoise_open_to_pb(opening()))
    message = codec.advance_to_pb(advance((1, 0, 2, 2)))
    for name, value in changes.items():
        setattr(message, name, value)
    async with running() as (server, _):
        error = await raw(server.port, open_, denoiser_pb2.DenoiseRequest(advance=message))
        assert named(error) == field


async def test_bytes_that_are_no_message_are_refused():
    async with running() as (server, client):
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            call = channel.stream_stream(f"/{SERVICE}/Denoise")(iter([b"\xff" * 40]))
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                async for _ in call:
                    pass
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        await client.open(opening())


async def test_corrupt_logits_end_their_own_session_alone():
    model = PagedTable()
    model.poisoned = {2}
    async with running(model) as (_, client):
        bad = await client.open(opening((2, 2), session_id="bad"))
        good = await client.open(opening())
        with pytest.raises(CorruptModelOutput):
            await bad.advance(advance((2, 2), session_id="bad"))
        assert (await good.advance(advance(PROMPT))).calls == 1


async def test_a_full_cache_refuses_a_session_until_another_ends():
    async with running(PagedTable(blocks=2)) as (server, client):
        stream = await client.open(opening())
        with pytest.raises(Overloaded):
            await client.open(opening(session_id="t"))
        await stream.close()
        await eventually(lambda: server.stats()["sessions"] == 0)
        other = await client.open(opening(session_id="t"))
        assert (await other.advance(advance(PROMPT, session_id="t"))).calls == 1


class Held(PagedTable):
    """A model whose passes wait for a permission each."""

    def __init__(self):
        super().__init__()
        self.permits = threading.Semaphore(0)
        self.waiting = threading.Event()

    def forward(self, segments):
        self.waiting.set()
        assert self.permits.acquire(timeout=DEADLINE_S)
        return super().forward(segments)


async def test_a_cancelled_advance_frees_its_session_and_no_other():
    model = Held()
    async with running(model) as (server, client):
        stream = await client.open(opening((1, 1)))
        other = await client.open(opening((0,), session_id="other"))
        asking = asyncio.create_task(stream.advance(advance((1, 1), calls=100)))
        await asyncio.to_thread(model.waiting.wait, DEADLINE_S)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        model.permits.release(1000)
        await eventually(lambda: server.stats()["sessions"] == 1)
        asked = advance((0,), calls=100, session_id="other")
        assert (await other.advance(asked)).block == ()


async def test_a_token_is_asked_for():
    async with running(token="a secret of sixteen") as (server, client):
        await client.open(opening())
        async with DenoiserClient(f"127.0.0.1:{server.port}") as stranger:
            with pytest.raises(Unauthenticated):
                await stranger.open(opening())


async def test_a_draining_replica_takes_no_session():
    async with running() as (server, client):
        stream = await client.open(opening())
        draining = asyncio.create_task(server.drain(5))
        await eventually(lambda: server.stats()["streams"] == 1)
        await stream.advance(advance(PROMPT))
        assert stream.draining
        with pytest.raises(Unavailable):
            await client.open(opening(session_id="t"))
        await stream.close()
        await draining


class Replicas:
    """Opens sessions on the first of its replicas that takes one."""

    def __init__(self, *clients):
        self.clients = list(clients)
        self.opened = []

    async def open(self, request):
        for client in self.clients:
            try:
                stream = await client.open(request)
            except Unavailable:
                continue
            self.opened.append((request, stream))
            return stream
        raise Unavailable("none is left")


CONFIG = DenoisingConfig(calls=1, retry=RetryConfig(wait_s=5, initial_s=0.01))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
async def test_a_lost_replica_costs_no_token(temperature):
    request = opening(new=30, temperature=temperature, seed=7, drafts=2)
    for lost_after in (0, 1, 2, 3, 5, 8):
        async with running() as (first, one), running() as (_, two):
            session, replicas = DenoiseSession(request), Replicas(one, two)
            found, answers = (), 0
            async for event in denoise(session, replicas, CONFIG):
                found += event.tokens
                answers += 1
                if answers == lost_after + 1:
                    await first.stop()
            assert found == session.text == plain(request)
            # On a stalled machine the other one may seem to be lost, too.
            assert len(replicas.opened) >= 2
            moved = replicas.opened[1][0]
            assert len(moved.prefix) % SLOTS == 0 or moved.prefix == request.prefix
            assert len(moved.prefix) + moved.max_new_tokens == len(request.prefix) + 30


async def test_a_session_moves_from_a_draining_replica():
    request = opening(new=30)
    async with running() as (first, one), running() as (_, two):
        session, replicas = DenoiseSession(request), Replicas(one, two)
        found, draining = (), None
        async for event in denoise(session, replicas, CONFIG):
            found += event.tokens
            if draining is None:
                draining = asyncio.create_task(first.drain(5))
                await turns()
        assert draining is not None
        await draining
        assert found == plain(request) and len(replicas.opened) == 2


async def test_a_reader_that_leaves_frees_the_session():
    async with running() as (server, client):
        events = denoise(DenoiseSession(opening(new=30)), Replicas(client), CONFIG)
        await anext(events)
        await events.aclose()
        await eventually(lambda: server.stats()["sessions"] == 0)


async def test_what_is_refused_is_raised_at_once_and_a_pool_that_is_gone_after_a_while():
    async with running() as (server, client):
        refused = denoise(DenoiseSession(opening(drafts=60)), Replicas(client), CONFIG)
        with pytest.raises(InvalidRequest) as caught:
            await anext(refused)
        assert caught.value.param == "max_drafts"
        await server.stop()
        short = DenoisingConfig(retry=RetryConfig(wait_s=0.05, initial_s=0.01))
        with pytest.raises(Unavailable):
            await anext(denoise(DenoiseSession(opening()), Replicas(client), short))


async def test_what_is_streamed_is_the_filled_beginning_of_the_block():
    request = opening((1,), 8, temperature=1.0)
    async with running() as (_, client):
        found, committed = (), ()
        async for event in denoise(DenoiseSession(request), Replicas(client), CONFIG):
            found += event.tokens
            committed += event.answer.committed
            filled = takewhile(lambda token: token != MASKED, event.answer.block)
            assert found == (*committed, *filled)[1:9]
        assert found == plain(request)


async def test_the_report_counts_every_call_of_the_model():
    request = opening((1,), 20, temperature=1.0)
    async with running() as (server, client):
        events = [each async for each in denoised_events(request, Replicas(client), CONFIG)]
        *steps, summary = [each for each in events if each is not None]
        tokens = tuple(each.token for step in steps for each in step.tokens)
        assert tokens == plain(request)
        # Some calls bring no token that is final.
        assert summary.report.target_passes == server.stats()["calls"] > len(steps)
