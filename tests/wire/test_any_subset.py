"""Infill over gRPC with real engines: a lost verifier, a cancel and a full one change no token."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from foredraft.errors import Overloaded, Unavailable
from foredraft.layout import Layout
from foredraft.messages import VerifyOpen
from foredraft.types import SamplingParams
from orchestrator.config import OrchestratorConfig
from orchestrator.controller_state import ControllerState
from orchestrator.drive.pipeline import generate
from orchestrator.ports import VerifyStream
from orchestrator.request import GenerationRequest, StepEvent
from tests.support.orchestrator.peers import ScriptedDrafter, config
from tests.support.tiny_models import write_tiny
from tests.support.waiting import DEADLINE_S, eventually
from verifier_service.client import VerifierClient
from verifier_service.config import VerifierConfig
from verifier_service.load import load_engine
from verifier_service.models import numerics
from verifier_service.runner import Runner
from verifier_service.server import VerifierServer, serve_engine

LAYOUT = Layout(60, (0, 1, 2, 20, 21, 40, 59))
# A few tokens a round, so that there are many of them.
SETTINGS = config(plain_steps=3, self_draft=4)
pytestmark = pytest.mark.skipif(
    not numerics.native_bf16(), reason="this CPU has no native bf16 arithmetic"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("any"), any_subset={"mask_token_id": 1})


def infill(temperature: float, speculate: bool = True) -> GenerationRequest:
    prompt, sampling = (2, 3, 4, 5, 6, 7, 8), SamplingParams(temperature, seed=11)
    return GenerationRequest("s", prompt, sampling, 53, speculate=speculate, layout=LAYOUT)


class Replicas:
    """A VerifierPort over several servers: the first one that is there."""

    def __init__(self, servers: list[VerifierServer]) -> None:
        self.servers = servers
        self._clients = [VerifierClient(f"127.0.0.1:{server.port}") for server in servers]

    async def open(self, request: VerifyOpen) -> VerifyStream:
        for client in self._clients:
            try:
                return await client.open(request)
            except Unavailable:
                continue
        raise Unavailable("no verifier is there")

    async def close(self) -> None:
        for client in self._clients:
            await client.close()


@asynccontextmanager
async def replicas(folder: Path, count: int, max_sessions: int = 8) -> AsyncIterator[Replicas]:
    settings = VerifierConfig(model=folder, kv_tokens=2048, max_sessions=max_sessions, grace_s=1.0)
    async with AsyncExitStack() as stack:
        servers = []
        for _ in range(count):
            servers.append(await serve_engine(settings, Runner(lambda: load_engine(settings))))
            stack.push_async_callback(servers[-1].stop)
        found = Replicas(servers)
        stack.push_async_callback(found.close)
        yield found


async def text(
    verifier: Replicas,
    request: GenerationRequest,
    lost_after: int | None = None,
    settings: OrchestratorConfig = SETTINGS,
    state: ControllerState | None = None,
) -> tuple[tuple[int, ...], int]:
    """The tokens and the moves of a request whose verifier is lost after so many events."""
    tokens: list[int] = []
    events = moves = 0
    async with asyncio.timeout(DEADLINE_S):
        found = generate(request, ScriptedDrafter(), verifier, settings, state=state)
        async for event in found:
            if isinstance(event, StepEvent):
                tokens += [each.token for each in event.tokens]
                events += 1
                if events == lost_after:
                    await verifier.servers[0].stop()
            else:
                moves = event.report.verifier_moves
    return tuple(tokens), moves


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("lost_after", [1, 2, 5])
async def test_a_lost_verifier_changes_no_token(
    folder: Path, temperature: float, lost_after: int
) -> None:
    async with replicas(folder, 2) as verifier:
        plain, _ = await text(verifier, infill(temperature, speculate=False))
        assert await text(verifier, infill(temperature)) == (plain, 0)
        assert await text(verifier, infill(temperature), lost_after) == (plain, 1)


async def test_a_cancel_frees_everything(folder: Path) -> None:
    async with replicas(folder, 1) as verifier:
        [server] = verifier.servers
        events = generate(infill(0.8), ScriptedDrafter(), verifier, SETTINGS)
        await anext(events)
        assert server.stats()["sessions"] == 1
        await events.aclose()
        await eventually(lambda: server.stats()["sessions"] == server.stats()["kv_used"] == 0)


async def test_a_full_verifier_refuses_and_takes_the_next_one(folder: Path) -> None:
    async with replicas(folder, 1, max_sessions=1) as verifier:
        [server] = verifier.servers
        plain, _ = await text(verifier, infill(0.8, speculate=False))
        held = generate(
            replace(infill(0.8), session_id="held"), ScriptedDrafter(), verifier, SETTINGS
        )
        await anext(held)
        with pytest.raises(Overloaded):
            await text(verifier, infill(0.8))
        await held.aclose()
        await eventually(lambda: server.stats()["sessions"] == 0)
        assert (await text(verifier, infill(0.8)))[0] == plain


async def test_requests_that_wait_for_a_full_verifier_write_what_each_writes_alone(
    folder: Path,
) -> None:
    async with replicas(folder, 1, max_sessions=1) as verifier:
        requests = [replace(infill(0.8), session_id=str(number)) for number in range(5)]
        alone = await text(verifier, requests[0])
        patient, state = SETTINGS.model_copy(update={"admission_wait_s": 30.0}), ControllerState()
        found = await asyncio.gather(
            *(text(verifier, each, settings=patient, state=state) for each in requests)
        )
        assert found == [alone] * 5
        [server] = verifier.servers
        assert server.stats()["preempted"] == 0 and not state.traffic.line.waiting


async def test_many_at_once_write_what_each_writes_alone(folder: Path) -> None:
    async with replicas(folder, 1) as verifier:
        requests = [
            replace(infill(0.8), session_id=str(seed), sampling=SamplingParams(0.8, seed=seed))
            for seed in range(6)
        ]
        alone = [await text(verifier, replace(each, speculate=False)) for each in requests]
        together = await asyncio.gather(*(text(verifier, each) for each in requests))
        assert list(together) == alone
