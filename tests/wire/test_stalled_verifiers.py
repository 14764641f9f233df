"""A verifier that stalls: its sessions go on at another replica, wherever it stalled them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from deployments.serve.routing import PinnedReplicas
from foredraft.messages import VerifyOpen
from foredraft.types import SamplingParams
from orchestrator.drive.pipeline import generate
from orchestrator.request import GenerationRequest, StepEvent, Summary
from tests.support.orchestrator.peers import ScriptedDrafter, config
from tests.support.relay import Relay, relayed
from tests.support.verifiers import VOCAB, make_engine
from tests.support.waiting import DEADLINE_S, eventually
from verifier_service.client import VerifierClient, VerifierStream
from verifier_service.config import VerifierConfig
from verifier_service.runner import Runner
from verifier_service.server import VerifierServer, serve_engine

PROMPT = (1, 2, 3)
COUNT = 120


@asynccontextmanager
async def replicas() -> AsyncIterator[tuple[list[VerifierServer], Relay]]:
    """Two verifiers, the first behind a relay."""
    servers = [
        await serve_engine(VerifierConfig(model=Path()), Runner(lambda: make_engine()))
        for _ in range(2)
    ]
    try:
        async with relayed(servers[0].port) as relay:
            yield servers, relay
    finally:
        for server in servers:
            await server.stop()


@pytest.mark.parametrize("rounds", [0, 1, 5, 20])
async def test_a_session_goes_on_elsewhere_while_its_verifier_stalls(rounds: int) -> None:
    request = GenerationRequest("s", PROMPT, SamplingParams(), COUNT, speculate=False)
    async with replicas() as (servers, relay), asyncio.timeout(DEADLINE_S):
        stalling, well = (f"127.0.0.1:{port}" for port in (relay.port, servers[1].port))
        chosen = iter([stalling, stalling])

        async def choose() -> str:
            # Serve does not see at once that a replica stalls.
            return next(chosen, well)

        opens: list[str] = []

        class Counted(VerifierClient):
            async def open(self, request: VerifyOpen) -> VerifierStream:
                opens.append(self.address)
                return await super().open(request)

        port = PinnedReplicas(choose, Counted)
        tokens: list[int] = []
        summary: Summary | None = None
        if rounds == 0:
            # Before it is opened: the connection is taken, and nothing answers.
            relay.stall()
        settings = config(plain_steps=1, fallback_steps=1, read_ahead=1, stream_interval_ms=0)
        async for event in generate(request, ScriptedDrafter(), port, settings):
            if isinstance(event, StepEvent):
                tokens += [committed.token for committed in event.tokens]
                if len(tokens) == rounds:
                    relay.stall()
            else:
                summary = event
        assert tokens == [(PROMPT[-1] + 1 + at) % VOCAB for at in range(COUNT)]
        assert summary is not None and summary.report.verifier_moves == (rounds > 0)
        # Not a second time where it stalls, which would take seconds more.
        assert opens == [stalling, well]
        await eventually(lambda: all(server.stats()["sessions"] == 0 for server in servers))
