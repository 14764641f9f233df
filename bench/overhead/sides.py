"""The two sides that are compared: through a cluster over HTTP, and the engines in this process."""

from __future__ import annotations

import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

import aiohttp

from bench.compare.workload import Mode
from bench.load.traffic import Answer, Traffic, Turn
from bench.overhead.cpu import cpu_seconds
from deployments.in_process import Engines
from deployments.ingress.openai.speculative import SpeculativeOptions
from foredraft.client import Prompt
from orchestrator.config import OrchestratorConfig
from orchestrator.controller_state import ControllerStates
from orchestrator.drive.pipeline import generate
from orchestrator.request import GenerationRequest, StepEvent


class Side(Protocol):
    """One place that decodes."""

    async def turn(self, traffic: Traffic, mode: Mode) -> Turn:
        """Decode all of the traffic's prompts."""


@dataclass(slots=True)
class Cluster:
    """A cluster over HTTP, and the CPU seconds of its parts by mode."""

    http: aiohttp.ClientSession
    url: str
    cpu: dict[str, dict[str, float]] = field(default_factory=dict)

    async def turn(self, traffic: Traffic, mode: Mode) -> Turn:
        """Decode all of the traffic's prompts."""
        before = cpu_seconds()
        turn = await traffic.turn(self.http, self.url, mode)
        after = cpu_seconds()
        spent = {part: seconds - before.get(part, 0.0) for part, seconds in after.items()}
        spent["tokens"] = sum(len(answer.tokens) for answer in turn.answers)
        sums = self.cpu.setdefault(mode.name, {})
        for part, value in spent.items():
            sums[part] = sums.get(part, 0.0) + value
        return turn


@dataclass(slots=True)
class Process:
    """Both engines and the orchestrator in this process, without Ray, HTTP or gRPC."""

    engines: Engines
    config: OrchestratorConfig
    states: ControllerStates = field(default_factory=ControllerStates)

    async def turn(self, traffic: Traffic, mode: Mode) -> Turn:
        """Decode all of the traffic's prompts."""
        return await traffic.play(self._answerer(traffic, mode))

    def _answerer(self, traffic: Traffic, mode: Mode) -> Callable[[int, Prompt], Awaitable[Answer]]:
        options = SpeculativeOptions.model_validate(mode.options)
        config = options.applied_to(self.config)

        async def answer(index: int, prompt: Prompt) -> Answer:
            assert not isinstance(prompt, str)
            name = uuid.uuid4().hex
            params = traffic.samplings[index]
            request = GenerationRequest(
                session_id=name,
                prompt=tuple(prompt),
                sampling=params,
                max_new_tokens=traffic.max_tokens[index],
                stop_token_ids=self.engines.eos,
                speculate=options.enabled,
                cache_salt=name,
            )
            state = self.states.of((params.temperature > 0, mode.name))
            sent = time.perf_counter()
            tokens: list[int] = []
            chunks: list[float] = []
            events = generate(
                request, self.engines.drafter, self.engines.verifier, config, state=state
            )
            async for event in events:
                if isinstance(event, StepEvent):
                    tokens += [committed.token for committed in event.tokens]
                    chunks.append(time.perf_counter())
            return Answer(tuple(tokens), sent, tuple(chunks))

        return answer
