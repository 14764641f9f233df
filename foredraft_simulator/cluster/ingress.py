"""The ingress: the orchestrator itself, request by request, and what each client sees."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from foredraft.errors import ForedraftError
from foredraft.types import SamplingParams
from foredraft_simulator.models.texts import generated, prompt
from foredraft_simulator.outcome import RequestOutcome
from foredraft_simulator.scenario.scenario import IngressConfig
from foredraft_simulator.traces.arrival import Arrival
from orchestrator.config import OrchestratorConfig
from orchestrator.controller_state import ControllerStates
from orchestrator.drive.pipeline import generate
from orchestrator.ports import DrafterPort, VerifierPort
from orchestrator.report import SpeculationReport
from orchestrator.request import GenerationRequest, Summary


@dataclass(slots=True)
class _Seen:
    """What a client has seen of its answer."""

    tokens: list[int] = field(default_factory=list)
    first_s: float | None = None
    last_s: float | None = None


class SimulatedIngress:
    """One replica of the ingress."""

    def __init__(
        self,
        config: IngressConfig,
        orchestrator: OrchestratorConfig,
        speculate: bool,
        drafters: DrafterPort,
        verifiers: VerifierPort,
    ) -> None:
        self._config, self._orchestrator, self._speculate = config, orchestrator, speculate
        self._drafters, self._verifiers = drafters, verifiers
        self._states = ControllerStates()
        self._room = asyncio.Semaphore(config.max_ongoing_requests)
        self._loop = asyncio.get_running_loop()

    async def serve(self, number: int, arrival: Arrival) -> RequestOutcome:
        """Return a request's outcome; it arrives now."""
        arrived, seen, report, error = self._loop.time(), _Seen(), None, ""
        async with self._room:
            await asyncio.sleep(self._config.request_s)
            try:
                report = await self._answer(number, arrival, seen)
            except ForedraftError as failure:
                error = f"{type(failure).__name__}: {failure}"
        first = arrival.prompt_tokens
        if seen.tokens != generated(first, first + len(seen.tokens)):
            raise ForedraftError(f"request {number} has other tokens than the target's")
        return RequestOutcome(
            number=number,
            arrived_s=arrived,
            prompt_tokens=arrival.prompt_tokens,
            tokens=len(seen.tokens),
            first_s=seen.first_s,
            last_s=seen.last_s,
            error=error,
            rounds=report.rounds if report else 0,
            offered=report.num_draft_tokens if report else 0,
            bought=report.num_bought_tokens if report else 0,
            accepted=report.num_accepted if report else 0,
            verifier_moves=report.verifier_moves if report else 0,
            drafter_attaches=report.drafter_attaches if report else 0,
        )

    async def _answer(self, number: int, arrival: Arrival, seen: _Seen) -> SpeculationReport:
        sampling = SamplingParams(seed=number)
        request = GenerationRequest(
            session_id=str(number),
            prompt=prompt(number, arrival.prompt_tokens),
            sampling=sampling,
            max_new_tokens=arrival.output_tokens,
            speculate=self._speculate,
        )
        config = self._orchestrator
        events = generate(
            request,
            self._drafters,
            self._verifiers,
            config,
            clock=self._loop.time,
            state=self._states.of((config.kind(sampling), self._speculate)),
        )
        async for event in events:
            if isinstance(event, Summary):
                return event.report
            seen.tokens += [committed.token for committed in event.tokens]
            seen.last_s = self._loop.time()
            if seen.first_s is None:
                seen.first_s = seen.last_s
        raise ForedraftError("a request ended without a summary")
