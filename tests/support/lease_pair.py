"""A drafter and a verifier that asks it, over gRPC in one process, and an orchestrator for both."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from drafter_service import server as drafter_server
from drafter_service.batcher import Batcher
from drafter_service.client import DrafterClient, DrafterStream
from drafter_service.config import DrafterConfig
from drafter_service.engine import DrafterEngine
from drafter_service.models.port import BlockRequest
from drafter_service.proposals.lattice import BlockScores
from foredraft.errors import Unavailable
from foredraft.messages import DraftBlock, Propose, ProposeAhead
from foredraft.rpc.server import ServiceServer
from foredraft.types import SamplingParams
from orchestrator.config import BreakerConfig, OrchestratorConfig, RetryConfig
from orchestrator.drive.pipeline import generate
from orchestrator.length.config import FixedConfig
from orchestrator.report import SpeculationReport
from orchestrator.request import GenerationRequest, StepEvent, Summary
from tests.support.drafters import INFO, ScriptedLM, scores_of, strategies_of
from tests.support.verifiers import CountingModel, make_engine
from tests.support.waiting import DEADLINE_S
from verifier_service import server as verifier_server
from verifier_service.client import VerifierClient, VerifierStream
from verifier_service.config import VerifierConfig
from verifier_service.drafters import Drafters
from verifier_service.models.port import Segment
from verifier_service.runner import Runner

VOCAB = 16
TOKENIZER = "tokenizer"
PROMPT = (3, 4, 5)
NEW = 40


def half_right(prefix: tuple[int, ...], num_slots: int) -> BlockScores:
    """It counts, but after a third token it is wrong."""
    tokens = [(prefix[-1] + 1 + slot + (slot >= 2)) % VOCAB for slot in range(num_slots)]
    return scores_of([{token: 0.9, (token + 3) % VOCAB: 0.05} for token in tokens])


def second_best(prefix: tuple[int, ...], num_slots: int) -> BlockScores:
    """It counts, but takes another token for the third one."""
    right = [(prefix[-1] + 1 + slot) % VOCAB for slot in range(num_slots)]
    odds = [(0.3, 0.6) if slot == 2 else (0.9, 0.05) for slot in range(num_slots)]
    return scores_of([{t: p, (t + 3) % VOCAB: q} for t, (p, q) in zip(right, odds, strict=True)])


def right(prefix: tuple[int, ...], num_slots: int) -> BlockScores:
    """It counts."""
    return scores_of([{(prefix[-1] + 1 + slot) % VOCAB: 0.9, 0: 0.01} for slot in range(num_slots)])


class Watched(ScriptedLM):
    """It can be made to break, and to be late: its passes of these numbers."""

    def __init__(self, script: Callable[..., BlockScores] = half_right) -> None:
        super().__init__(script, slots=8, branches=8)
        self.capabilities = replace(self.capabilities, max_len=1000, cache_tokens=1000)
        self.broken = False
        self.late: set[int] = set()
        self.rounds: Callable[[], float] = lambda: 0.0

    def draft(self, requests: Sequence[BlockRequest]) -> list[BlockScores]:
        if self.broken:
            raise RuntimeError("the model broke")
        if len(self.passes) in self.late:
            # The round under way may be one more.
            give_up, enough = time.monotonic() + DEADLINE_S, self.rounds() + 2
            while self.rounds() < enough and time.monotonic() < give_up:
                time.sleep(0.001)
        return super().draft(requests)


class SlowModel(CountingModel):
    """A target that can be watched while it runs."""

    def __init__(self) -> None:
        super().__init__(1000, VOCAB)
        self.info = replace(self.info, tokenizer_hash=TOKENIZER)

    def forward(self, segments: Sequence[Segment]) -> np.ndarray:
        time.sleep(0.002)
        return super().forward(segments)


async def drafter(model: Watched | None = None, vocab: int = VOCAB) -> ServiceServer:
    model = model or Watched()
    config = DrafterConfig(model=Path("unused"))
    info = replace(INFO, tokenizer_hash=TOKENIZER, max_len=1000, vocab_size=vocab)
    make = strategies_of(model).make
    batcher = Batcher(lambda: DrafterEngine(model, make, info, 64, 16), config.max_queue)
    return await drafter_server.serve_engine(batcher, config)


async def verifier(
    connect: Callable[[str], DrafterClient] | None = DrafterClient,
) -> verifier_server.VerifierServer:
    config = VerifierConfig(model=Path(), grace_s=0.5)
    runner = Runner(lambda: make_engine(SlowModel(), kv_tokens=8192))
    return await verifier_server.serve_engine(config, runner, drafters=Drafters(connect))


class Counter(Protocol):
    """Counts the requests for drafts."""

    asked: int


def count_requests(stream: DrafterStream, counter: Counter) -> None:
    """Have a stream's requests for drafts counted."""
    propose, propose_ahead = stream.propose, stream.propose_ahead

    async def counted(request: Propose) -> DraftBlock:
        counter.asked += 1
        return await propose(request)

    async def counted_ahead(request: ProposeAhead) -> tuple[DraftBlock, ...]:
        counter.asked += 1
        return await propose_ahead(request)

    stream.propose, stream.propose_ahead = counted, counted_ahead


class Pool:
    """A port that opens on the newest server; asked counts the orchestrator's draft requests."""

    def __init__(self, client: Callable[[str], DrafterClient | VerifierClient]) -> None:
        self._client = client
        self.servers: list[ServiceServer] = []
        self._clients: list[DrafterClient | VerifierClient] = []
        self.streams: list[DrafterStream | VerifierStream] = []
        self.scheme = ""
        self.asked = 0

    async def open(self, request: Any) -> Any:
        if not self.servers:
            raise Unavailable("none is running")
        client = self._client(f"{self.scheme}127.0.0.1:{self.servers[-1].port}")
        self._clients.append(client)
        stream = await client.open(request)
        self.streams.append(stream)
        if isinstance(stream, DrafterStream):
            count_requests(stream, self)
        return stream

    async def kill(self) -> None:
        await self.servers.pop().stop()

    async def close(self) -> None:
        for client in self._clients:
            await client.close()
        while self.servers:
            await self.kill()


@dataclass
class Pair:
    drafters: Pool
    verifiers: Pool

    def gauges(self) -> float:
        """The sessions that are open anywhere."""
        open_drafts = sum(server.stats()["streams"] for server in self.drafters.servers)
        return open_drafts + sum(s.stats()["sessions"] for s in self.verifiers.servers)


@asynccontextmanager
async def pair(
    model: Watched | None = None, connect: Callable[[str], DrafterClient] | None = DrafterClient
) -> AsyncIterator[Pair]:
    both = Pair(Pool(DrafterClient), Pool(VerifierClient))
    both.drafters.servers.append(await drafter(model))
    both.verifiers.servers.append(await verifier(connect))
    try:
        yield both
    finally:
        await both.drafters.close()
        await both.verifiers.close()


LED = OrchestratorConfig(
    adl=FixedConfig(k=6),
    verifier_led_rounds=4,
    draft_deadline_ms=2000,
    # An event for each round: tests count them.
    stream_interval_ms=0,
    breaker=BreakerConfig(cooldown_s=0.01, max_cooldown_s=0.02),
    verifier_retry=RetryConfig(attempts=8, initial_s=0.01, max_s=0.02),
)

Watcher = Callable[[int], object]


async def decoded(
    both: Pair,
    config: OrchestratorConfig = LED,
    temperature: float = 0.0,
    new: int = NEW,
    stops: tuple[int, ...] = (),
    speculate: bool = True,
    watch: Watcher | None = None,
) -> tuple[list[int], SpeculationReport]:
    """Decode one request; watch is awaited after each event, with its number."""
    request = GenerationRequest(
        "s", PROMPT, SamplingParams(temperature, seed=7), new, stops, speculate=speculate
    )
    tokens: list[int] = []
    report = None
    number = 0
    async with asyncio.timeout(DEADLINE_S):
        events = generate(request, both.drafters, both.verifiers, config)
        async for event in events:
            if isinstance(event, StepEvent):
                tokens += [each.token for each in event.tokens]
                number += 1
                if watch is not None and (waiting := watch(number)) is not None:
                    await waiting  # type: ignore[misc]
            if isinstance(event, Summary):
                report = event.report
    assert report is not None
    return tokens, report


PLAIN_TOKENS = [(PROMPT[-1] + 1 + at) % VOCAB for at in range(NEW)]
