"""DFlash and its target behind gRPC, watched, and a request decoded through both."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from drafter_service.client import DrafterClient, DrafterStream
from drafter_service.config import DrafterConfig
from drafter_service.server import serve as serve_drafter
from foredraft.errors import Unavailable
from foredraft.messages import (
    DraftBlock,
    DraftOpen,
    Propose,
    ProposeAhead,
    Round,
    Verdict,
    VerifyOpen,
)
from foredraft.tensors.carrier import IN_CHUNKS, Carrier
from foredraft.types import Proposal, SamplingParams
from orchestrator.config import BreakerConfig, OrchestratorConfig
from orchestrator.controller_state import ControllerState
from orchestrator.drive.pipeline import generate
from orchestrator.length.config import FixedConfig
from orchestrator.report import SpeculationReport
from orchestrator.request import GenerationRequest, StepEvent, Summary
from verifier_service.client import VerifierClient, VerifierStream
from verifier_service.config import FeaturesConfig, VerifierConfig
from verifier_service.server import serve as serve_verifier

PROMPT = tuple(3 + 7 * i % 19 for i in range(70))
CONFIG = OrchestratorConfig(
    proposal=Proposal.TREE,
    adl=FixedConfig(k=12),
    draft_deadline_ms=5000,
    breaker=BreakerConfig(cooldown_s=0.01, max_cooldown_s=0.02),
)


@dataclass
class Checkpoints:
    target: Path
    drafter: Path
    weights: dict[str, torch.Tensor]


class Served(NamedTuple):
    """Both services' clients."""

    verifier: VerifierClient
    drafter: DrafterClient


@asynccontextmanager
async def verifying(
    target: Path, drafter: Path | None, carrier: Carrier = IN_CHUNKS
) -> AsyncIterator[VerifierClient]:
    config = VerifierConfig(
        model=target,
        dtype="fp32",
        kv_tokens=4096,
        row_budget=32,
        features=FeaturesConfig(model=drafter) if drafter else None,
    )
    connect = partial(DrafterClient, carrier=carrier)
    server = await serve_verifier(config, connect=connect, carrier=carrier)
    client = VerifierClient(f"127.0.0.1:{server.port}")
    try:
        yield client
    finally:
        await client.close()
        await server.stop()


@asynccontextmanager
async def drafting(
    checkpoints: Checkpoints, carrier: Carrier = IN_CHUNKS
) -> AsyncIterator[DrafterClient]:
    config = DrafterConfig(
        model=checkpoints.drafter, target=checkpoints.target, dtype="float32", prefill_rows=16
    )
    server = await serve_drafter(config, carrier)
    try:
        async with DrafterClient(f"127.0.0.1:{server.port}") as client:
            yield client
    finally:
        await server.stop()


class Watched:
    """Both ports over their clients; what passes through is kept, and may be changed."""

    def __init__(self, client: Any, change: Callable[[Any], Any] = lambda passing: passing) -> None:
        self.client = client
        self.change = change
        self.opens: list[Any] = []
        self.passed: list[Any] = []
        self.rounds: list[Round] = []
        # Streams are lost with these messages.
        self.lose: set[int] = set()

    async def open(self, request: DraftOpen | VerifyOpen) -> Any:
        self.opens.append(request)
        return _Stream(self, await self.client.open(request))


class _Stream:
    def __init__(self, port: Watched, stream: DrafterStream | VerifierStream) -> None:
        self._port, self._stream = port, stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def propose(self, request: Propose) -> DraftBlock:
        await self._pass(request)
        return await self._stream.propose(self._port.change(request))

    async def propose_ahead(self, request: ProposeAhead) -> tuple[DraftBlock, ...]:
        await self._pass(request)
        return await self._stream.propose_ahead(request)

    async def verify(self, request: Round) -> Verdict:
        self._port.rounds.append(request)
        verdict = self._port.change(await self._stream.verify(request))
        await self._pass(verdict)
        return verdict

    async def _pass(self, message: Any) -> None:
        self._port.passed.append(message)
        if len(self._port.passed) in self._port.lose:
            await self._stream.close()
            raise Unavailable("lost")


async def decoded(
    drafter: Any,
    verifier: Any,
    temperature: float = 1.5,
    state: ControllerState | None = None,
    config: OrchestratorConfig = CONFIG,
    **fields: Any,
) -> tuple[tuple[int, ...], SpeculationReport]:
    request = GenerationRequest(uuid.uuid4().hex, PROMPT, SamplingParams(temperature, seed=2), 60)
    tokens: list[int] = []
    async with asyncio.timeout(60):
        async for event in generate(
            replace(request, **fields), drafter, verifier, config, state=state
        ):
            if isinstance(event, StepEvent):
                tokens += [each.token for each in event.tokens]
            else:
                assert isinstance(event, Summary)
                summary = event
    return tuple(tokens), summary.report


def told_of(port: Watched) -> bytes:
    """All features that verdicts brought."""
    return b"".join(verdict.features for verdict in port.passed)
