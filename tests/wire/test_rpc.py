"""What all services do alike: keepalive, drain, stop, deadlines, refusals, and the log."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from denoiser_service import server as denoiser_server
from denoiser_service.client import DenoiserClient
from denoiser_service.config import DenoiserConfig
from denoiser_service.runner import Runner as DenoiserRunner
from drafter_service import server as drafter_server
from drafter_service.batcher import Batcher
from drafter_service.client import DrafterClient
from drafter_service.config import DrafterConfig
from foredraft.codec import denoiser as denoiser_codec
from foredraft.codec import drafter as drafter_codec
from foredraft.codec import verifier as verifier_codec
from foredraft.errors import ConfigError, DeadlineExceeded, Unavailable
from foredraft.rpc import options
from foredraft.rpc.server import ServiceServer
from foredraft.v1 import denoiser_pb2, drafter_pb2, verifier_pb2
from tests.support import drafters, verifiers
from tests.support.denoiser import paged
from tests.support.relay import Relay, relayed
from tests.support.waiting import DEADLINE_S, eventually
from verifier_service import server as verifier_server
from verifier_service.client import VerifierClient
from verifier_service.config import VerifierConfig
from verifier_service.runner import Runner

PREFIX = (3, 4, 5)


@dataclass
class Service:
    """How one of them is served and used."""

    serve: Callable[..., Coroutine[Any, Any, ServiceServer]]
    connect: Callable[..., Any]
    opening: Callable[[], Any]
    encoded: Callable[[Any], Any]
    ask: Callable[[Any], Awaitable[Any]]
    method: str
    request: Any
    response: Any


async def serve_drafter(
    load: Callable[[Any], Any] = lambda engine: engine, **settings: Any
) -> ServiceServer:
    config = DrafterConfig(model=Path(), **settings)
    model = drafters.ScriptedLM(drafters.counting)
    batcher = Batcher(lambda: load(drafters.engine_of(model, 8)), config.max_queue)
    return await drafter_server.serve_engine(batcher, config)


async def serve_verifier(
    load: Callable[[Any], Any] = lambda engine: engine, **settings: Any
) -> ServiceServer:
    config = VerifierConfig(model=Path(), **settings)
    return await verifier_server.serve_engine(config, Runner(lambda: load(verifiers.make_engine())))


async def serve_denoiser(
    load: Callable[[Any], Any] = lambda engine: engine, **settings: Any
) -> ServiceServer:
    config = DenoiserConfig(model=Path(), **settings)
    runner = DenoiserRunner(lambda: load(paged.make_engine()))
    return await denoiser_server.serve_engine(config, runner)


DRAFTER = Service(
    serve_drafter,
    DrafterClient,
    lambda: drafters.opening("s", PREFIX),
    drafter_codec.draft_open_to_pb,
    lambda stream: stream.propose(drafters.asking("s", PREFIX, 3, 2)),
    f"/{drafter_server.SERVICE}/Draft",
    drafter_pb2.DraftRequest,
    drafter_pb2.DraftResponse,
)
VERIFIER = Service(
    serve_verifier,
    VerifierClient,
    lambda: verifiers.opening(PREFIX),
    verifier_codec.verify_open_to_pb,
    lambda stream: stream.verify(verifiers.round_after(PREFIX, (6,))),
    f"/{verifier_server.SERVICE}/Verify",
    verifier_pb2.VerifyRequest,
    verifier_pb2.VerifyResponse,
)
DENOISER = Service(
    serve_denoiser,
    DenoiserClient,
    paged.opening,
    denoiser_codec.denoise_open_to_pb,
    lambda stream: stream.advance(paged.advance(paged.opening().prefix)),
    f"/{denoiser_server.SERVICE}/Denoise",
    denoiser_pb2.DenoiseRequest,
    denoiser_pb2.DenoiseResponse,
)
every = pytest.mark.parametrize(
    "service", [DRAFTER, VERIFIER, DENOISER], ids=["drafter", "verifier", "denoiser"]
)


@asynccontextmanager
async def serving(service: Service, **settings: Any) -> AsyncIterator[ServiceServer]:
    server = await service.serve(**settings)
    try:
        yield server
    finally:
        await server.stop()


@asynccontextmanager
async def connected(service: Service, **settings: Any) -> AsyncIterator[tuple[ServiceServer, Any]]:
    async with (
        serving(service, **settings) as server,
        service.connect(f"127.0.0.1:{server.port}") as client,
    ):
        yield server, client


@asynccontextmanager
async def over_a_relay(service: Service) -> AsyncIterator[tuple[ServiceServer, Any, Relay]]:
    async with (
        asyncio.timeout(DEADLINE_S),
        serving(service) as server,
        relayed(server.port) as relay,
        service.connect(f"127.0.0.1:{relay.port}") as client,
    ):
        yield server, client, relay


async def health(server: ServiceServer) -> int:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        status: int = (await stub.Check(health_pb2.HealthCheckRequest())).status
        return status


async def sent(service: Service, server: ServiceServer, *messages: bytes) -> grpc.StatusCode:
    """Send bytes as they are; return the status that the stream ends with."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        method = channel.stream_stream(
            service.method,
            request_serializer=lambda data: data,
            response_deserializer=service.response.FromString,
        )
        call = method()
        for message in messages:
            await call.write(message)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            while await call.read() is not grpc.aio.EOF:
                pass
        return caught.value.code()


@pytest.mark.slow
async def test_idle_sessions_outlive_more_pings_than_grpc_allows_by_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # grpc pings once a second at most.
    monkeypatch.setattr(options, "SERVER", options.server_options(20, 20_000))
    monkeypatch.setattr(options, "CHANNEL", options.channel_options(20, 20_000))

    async def idle(service: Service) -> None:
        async with over_a_relay(service) as (server, client, relay):
            stream = await client.open(service.opening())
            await relay.pinged(5)
            assert await service.ask(stream)
            assert server.stats()["streams"] == 1

    await asyncio.gather(idle(DRAFTER), idle(VERIFIER))


@every
async def test_a_peer_that_stalls_is_noticed_by_both_ends(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without ping_timeout_ms it would take a minute.
    monkeypatch.setattr(options, "SERVER", options.server_options(50, 200))
    monkeypatch.setattr(options, "CHANNEL", options.channel_options(50, 200))
    async with over_a_relay(service) as (server, client, relay):
        stream = await client.open(service.opening())
        relay.stall()
        with pytest.raises(Unavailable):
            await service.ask(stream)
        await eventually(lambda: server.stats()["sessions"] == 0)


@every
async def test_bytes_that_are_no_message_are_an_invalid_argument_and_no_traceback(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    opened = service.request(open=service.encoded(service.opening())).SerializeToString()
    async with serving(service) as server:
        for messages in ([b"\xff\xff"], [b"\x0a\x7f"], [opened, b"\xff"]):
            status = await sent(service, server, *messages)
            assert status is grpc.StatusCode.INVALID_ARGUMENT
        await eventually(lambda: server.stats()["sessions"] == 0)
    assert not [record for record in caplog.records if record.exc_info]


@every
async def test_cancelled_sessions_leave_nothing_in_the_log(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    async with connected(service) as (server, client):
        for turns in range(24):
            stream = await client.open(service.opening())
            asking = asyncio.ensure_future(service.ask(stream))
            for _ in range(turns):
                await asyncio.sleep(0)
            asking.cancel()
            await stream.close()
            await asyncio.gather(asking, return_exceptions=True)
        await eventually(lambda: server.stats()["sessions"] == 0)
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]


@every
async def test_a_stream_must_open_in_time(service: Service) -> None:
    async with serving(service, open_timeout_s=0.05) as server, asyncio.timeout(DEADLINE_S):
        assert await sent(service, server) is grpc.StatusCode.DEADLINE_EXCEEDED


@every
async def test_an_idle_session_ends_with_a_deadline(service: Service) -> None:
    async with connected(service, idle_ttl_s=0.1) as (server, client):
        stream, ended = await client.open(service.opening()), asyncio.Event()
        stream.on_end(ended.set)
        await ended.wait()
        with pytest.raises(DeadlineExceeded):
            await service.ask(stream)
        await eventually(lambda: server.stats()["sessions"] == server.stats()["streams"] == 0)


@every
async def test_draining_leaves_the_server_up_and_stop_may_be_repeated(service: Service) -> None:
    async with serving(service) as server:
        async with service.connect(f"127.0.0.1:{server.port}") as client:
            stream = await client.open(service.opening())
            assert await health(server) == health_pb2.HealthCheckResponse.SERVING
            # Both return after the grace period, of which none is left.
            await server.drain(0)
            await server.drain(0)
            assert await health(server) == health_pb2.HealthCheckResponse.NOT_SERVING
            assert await service.ask(stream)
            assert stream.draining
            with pytest.raises(Unavailable, match="draining"):
                await client.open(service.opening())
            await stream.close()
            async with asyncio.timeout(DEADLINE_S):
                await server.drain(60)
        await server.stop()
        await server.stop()
        with pytest.raises(Unavailable):
            server.check_health()


@every
async def test_a_retired_client_keeps_its_channel_until_its_last_session_ends(
    service: Service,
) -> None:
    async with serving(service) as server:
        client = service.connect(f"127.0.0.1:{server.port}")
        stream = await client.open(service.opening())
        client.retire()
        assert await service.ask(stream)
        await stream.close()
        await eventually(lambda: client.channel.get_state() is grpc.ChannelConnectivity.SHUTDOWN)


@every
async def test_a_server_that_never_answers_open_is_given_up(service: Service) -> None:
    async def mute(client: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        held.append(back)
        await client.read()

    held: list[asyncio.StreamWriter] = []
    listening = await asyncio.start_server(mute, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    async with service.connect(f"127.0.0.1:{port}", 0.05) as client:
        with pytest.raises(DeadlineExceeded):
            await client.open(service.opening())
    listening.close()
    for back in held:
        back.close()
        await back.wait_closed()


@every
async def test_health_says_no_while_the_model_loads(service: Service) -> None:
    loop = asyncio.get_running_loop()
    loading, loaded = asyncio.Event(), asyncio.Event()

    def load(engine: Any) -> Any:
        loop.call_soon_threadsafe(loading.set)
        asyncio.run_coroutine_threadsafe(loaded.wait(), loop).result(DEADLINE_S)
        return engine

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    starting = asyncio.create_task(service.serve(load, port=port))
    await loading.wait()
    async with service.connect(f"127.0.0.1:{port}") as client:
        with pytest.raises(Unavailable, match="not running"):
            await client.open(service.opening())
    loaded.set()
    server = await starting
    assert await health(server) == health_pb2.HealthCheckResponse.SERVING
    await server.stop()


@every
async def test_a_port_in_use_is_an_error_that_names_it(service: Service) -> None:
    async with serving(service) as server:
        with pytest.raises(ConfigError, match=f"127.0.0.1:{server.port}"):
            await service.serve(port=server.port)
