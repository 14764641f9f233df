"""Who may talk to a service: who shows its token; and whom a verifier talks to."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from foredraft.errors import ConfigError, InvalidRequest, Unauthenticated
from foredraft.rpc.token import token_in
from foredraft.v1 import (
    denoiser_pb2,
    denoiser_pb2_grpc,
    drafter_pb2,
    drafter_pb2_grpc,
    verifier_pb2,
    verifier_pb2_grpc,
)
from tests.wire.test_rpc import DENOISER, DRAFTER, Service, every, serving
from verifier_service.drafters import Drafters

TOKEN = "of sixteen and more"


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text(TOKEN + "\n")
    return file


async def decide(service: Service, port: int, token: str) -> None:
    async with service.connect(f"127.0.0.1:{port}", token=token) as client:
        stream = await client.open(service.opening())
        await service.ask(stream)


@every
async def test_only_callers_with_the_token_may_open_a_session_or_ask_for_the_model(
    service: Service, token_file: Path
) -> None:
    async with serving(service, token_file=token_file) as server:
        await decide(service, server.port, TOKEN)
        for token in ("", TOKEN[:-1], TOKEN + "e"):
            with pytest.raises(Unauthenticated):
                await decide(service, server.port, token)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            # A probe has no token.
            asked = health_pb2.HealthCheckRequest()
            assert (await health_pb2_grpc.HealthStub(channel).Check(asked)).status == 1
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await _info(service, channel)
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert server.stats()["sessions"] == 0


@every
@pytest.mark.parametrize("writes", (True, False))
async def test_a_stream_without_the_token_is_refused_after_its_first_message_or_a_second(
    service: Service, token_file: Path, writes: bool
) -> None:
    async with (
        serving(service, token_file=token_file) as server,
        grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        call = channel.stream_stream(service.method)()
        await asyncio.sleep(0.1)
        assert not call.done()
        if writes:
            await call.write(b"")
        assert await call.code() is grpc.StatusCode.UNAUTHENTICATED


def _info(service: Service, channel: grpc.aio.Channel) -> Any:
    if service is DRAFTER:
        drafter = drafter_pb2_grpc.DrafterServiceStub(channel)
        return drafter.DrafterInfo(drafter_pb2.DrafterInfoRequest())
    if service is DENOISER:
        denoiser = denoiser_pb2_grpc.DenoiserServiceStub(channel)
        return denoiser.DenoiserInfo(denoiser_pb2.DenoiserInfoRequest())
    verifier = verifier_pb2_grpc.VerifierServiceStub(channel)
    return verifier.VerifierInfo(verifier_pb2.VerifierInfoRequest())


async def test_a_verifier_connects_to_no_drafter_that_was_not_introduced() -> None:
    dialled: list[str] = []
    stream: Any = object()

    class Client:
        async def open(self, request: Any) -> Any:
            return stream

    def connect(address: str) -> Any:
        dialled.append(address)
        return Client()

    async def permits(address: str) -> bool:
        return address == "10.0.0.1:5000"

    known = Drafters(connect, permits)
    for _ in range(2):
        assert await known.open("10.0.0.1:5000", DRAFTER.opening()) is stream
    for address in ("10.0.0.1:22", "127.0.0.1:8265", "metadata.internal:80"):
        with pytest.raises(InvalidRequest, match="no drafter of this cluster"):
            await known.open(address, DRAFTER.opening())
    assert dialled == ["10.0.0.1:5000"]


def test_a_token_file_that_is_none_is_refused(tmp_path: Path, token_file: Path) -> None:
    assert token_in(None) == "" and token_in(token_file) == TOKEN
    (tmp_path / "short").write_text("short")
    for name in ("short", "missing"):
        with pytest.raises(ConfigError) as refused:
            token_in(tmp_path / name)
        assert refused.value.param == "token_file"
