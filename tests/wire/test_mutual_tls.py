"""Mutual TLS between the services: who may talk to whom, by the role in a certificate."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from typer.testing import CliRunner

from drafter_service.batcher import Batcher
from drafter_service.client import DrafterClient
from drafter_service.config import DrafterConfig
from drafter_service.server import serve_engine as serve_drafter
from foredraft.errors import ConfigError, ForedraftError, PermissionDenied, Unavailable
from foredraft.rpc.transport import PLAIN_TEXT, Role, Transport, transport_of
from foredraft_cli.certificates import app
from tests.support.drafters import ScriptedLM, asking, counting, engine_of, opening
from tests.support.verifiers import make_engine, round_after
from tests.support.verifiers import opening as verifier_opening
from verifier_service.client import VerifierClient
from verifier_service.config import VerifierConfig
from verifier_service.runner import Runner
from verifier_service.server import serve_engine as serve_verifier

PREFIX = (3, 4, 5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp("certificates")
    assert CliRunner().invoke(app, [str(made)]).exit_code == 0
    return made


@pytest.fixture(scope="module")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp("strangers")
    assert CliRunner().invoke(app, [str(made)]).exit_code == 0
    return made


@asynccontextmanager
async def drafter(folder: Path) -> AsyncIterator[str]:
    config = DrafterConfig(model=Path("unused"), mtls=folder)
    batcher = Batcher(lambda: engine_of(ScriptedLM(counting), 4), config.max_queue)
    server = await serve_drafter(batcher, config)
    try:
        yield f"127.0.0.1:{server.port}"
    finally:
        await server.stop()


@asynccontextmanager
async def verifier(folder: Path) -> AsyncIterator[str]:
    server = await serve_verifier(VerifierConfig(model=Path(), mtls=folder), Runner(make_engine))
    try:
        yield f"127.0.0.1:{server.port}"
    finally:
        await server.stop()


async def drafted(address: str, transport: Transport) -> tuple[int, ...]:
    async with DrafterClient(address, transport=transport) as client:
        stream = await client.open(opening("s", PREFIX))
        return (await stream.propose(asking("s", PREFIX, 3, 2))).tokens


async def verified(address: str, transport: Transport) -> int:
    async with VerifierClient(address, transport=transport) as client:
        stream = await client.open(verifier_opening((1, 2)))
        return len((await stream.verify(round_after((1, 2)))).next_tokens)


@pytest.mark.parametrize("role", [Role.ORCHESTRATOR, Role.VERIFIER])
async def test_orchestrators_and_verifiers_may_ask_a_drafter(folder: Path, role: Role) -> None:
    async with drafter(folder) as address:
        assert await drafted(address, transport_of(folder, role)) == (6, 7)


async def test_an_orchestrator_alone_may_open_at_a_verifier(folder: Path) -> None:
    async with verifier(folder) as address:
        assert await verified(address, transport_of(folder, Role.ORCHESTRATOR)) == 1
        for role in (Role.VERIFIER, Role.DRAFTER):
            with pytest.raises(PermissionDenied, match="may not call a verifier"):
                await verified(address, transport_of(folder, role))


async def test_a_drafter_may_not_ask_a_drafter(folder: Path) -> None:
    async with drafter(folder) as address:
        with pytest.raises(PermissionDenied):
            await drafted(address, transport_of(folder, Role.DRAFTER))
        async with DrafterClient(address, transport=transport_of(folder, Role.DRAFTER)) as client:
            with pytest.raises(PermissionDenied):
                await client.info()


async def test_a_stream_of_another_role_is_refused_after_its_first_message(folder: Path) -> None:
    """A client that writes while its stream ends would lose the status."""
    transport = transport_of(folder, Role.DRAFTER)
    async with (
        drafter(folder) as address,
        transport.channel(address, Role.DRAFTER, ()) as channel,
    ):
        call = channel.stream_stream("/foredraft.v1.DrafterService/Draft")()
        await call.wait_for_connection()
        await asyncio.sleep(0.1)
        assert not call.done()
        await call.write(b"")
        assert await call.code() is grpc.StatusCode.PERMISSION_DENIED


async def test_plain_text_and_strangers_get_no_connection(folder: Path, strangers: Path) -> None:
    async with drafter(folder) as address:
        for transport in (PLAIN_TEXT, transport_of(strangers, Role.ORCHESTRATOR)):
            with pytest.raises(Unavailable):
                await drafted(address, transport)


async def test_a_peer_of_another_role_is_not_believed(folder: Path) -> None:
    """A drafter that answers at a verifier's address sees nothing of the session."""
    async with drafter(folder) as address:
        with pytest.raises(Unavailable):
            await verified(address, transport_of(folder, Role.ORCHESTRATOR))


async def test_what_is_not_a_session_is_refused_too(folder: Path) -> None:
    """Bytes of plain text before any handshake disturb nobody."""
    async with drafter(folder) as address:
        async with grpc.aio.insecure_channel(address) as channel:
            with pytest.raises(grpc.aio.AioRpcError):
                await channel.unary_unary("/foredraft.v1.DrafterService/DrafterInfo")(b"")
        assert await drafted(address, transport_of(folder, Role.ORCHESTRATOR)) == (6, 7)


def test_a_missing_file_is_named(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_bytes((folder / "ca.crt").read_bytes())
    with pytest.raises(ConfigError, match=r"drafter\.crt") as caught:
        transport_of(tmp_path, Role.DRAFTER)
    assert caught.value.param == "mtls" and isinstance(caught.value, ForedraftError)


def test_keys_are_their_owners_and_the_authority_stays(folder: Path) -> None:
    authority = (folder / "ca.crt").read_bytes()
    before = (folder / "drafter.crt").read_bytes()
    assert CliRunner().invoke(app, [str(folder), "--days", "1"]).exit_code == 0
    assert (folder / "ca.crt").read_bytes() == authority
    assert (folder / "drafter.crt").read_bytes() != before
    for name in ("ca", *Role):
        assert (folder / f"{name}.key").stat().st_mode & 0o777 == 0o600
