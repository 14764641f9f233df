"""The embedded pair as it is, recorded and simulated: `python -m bench.simulator.embedded`.

One session alone is recorded. What the simulator makes of that run is compared with it, with plain
decoding and with several sessions at once, all on the same engines in this process.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from bench.simulator.validate import Figures, as_markdown, figures
from deployments.config import EMBEDDED_FILE, ForedraftConfig, read
from deployments.in_process import Engines, engines
from deployments.ingress.openai.rounds import Rounds
from deployments.ingress.stream.sse import RoundText
from foredraft.types import SamplingParams
from foredraft_cli.prompts import held_out
from foredraft_simulator.acceptance.config import RecordedConfig
from foredraft_simulator.outcome import RequestOutcome
from foredraft_simulator.recorded_runs.answers import recorded_request
from foredraft_simulator.recorded_runs.costs import costs_of, played
from foredraft_simulator.recorded_runs.records import (
    Header,
    RecordedRequest,
    RecordedRun,
    write_run,
)
from foredraft_simulator.scenario.pools import VerifierPoolConfig
from foredraft_simulator.scenario.scenario import Scenario
from foredraft_simulator.simulate import simulate
from foredraft_simulator.traces.arrival import Arrival
from orchestrator.config import NgramConfig, OrchestratorConfig
from orchestrator.controller_state import ControllerStates
from orchestrator.drive.pipeline import generate
from orchestrator.request import GenerationRequest, StepEvent
from verifier_service.config import VerifierConfig

# Time from the arrival of some requests to that of the next ones.
_APART_S = 2.0


class _Run(NamedTuple):
    """A run for real: every request as it was recorded, and the seconds of all."""

    requests: tuple[RecordedRequest, ...]
    seconds: float


async def _run(
    loaded: Engines,
    config: OrchestratorConfig,
    prompts: Sequence[tuple[int, ...]],
    clients: int,
    tokens: int,
    speculate: bool,
) -> _Run:
    """Decode prompts: so many come at once, and as many again when they should have ended."""
    states = ControllerStates()
    began = time.perf_counter()
    # No run finds another one's prompts in the verifier's cache.
    run = str(began)

    async def one(number: int, prompt: tuple[int, ...]) -> RecordedRequest:
        await asyncio.sleep(began + number // clients * _APART_S - time.perf_counter())
        arrived = time.perf_counter()
        sampling = SamplingParams(seed=number)
        request = GenerationRequest(
            session_id=f"{run}-{number}",
            prompt=prompt,
            sampling=sampling,
            max_new_tokens=tokens,
            speculate=speculate,
            cache_salt=f"{run}-{number}",
        )
        first, rounds = 0.0, []
        state = states.of(config.kind(sampling))
        events = generate(request, loaded.drafter, loaded.verifier, config, state=state)
        async for event in events:
            if isinstance(event, StepEvent):
                first = first or time.perf_counter() - arrived
                pieces = ("",) * len(event.tokens)
                rounds += Rounds(loaded.tokenizer).of([RoundText(event, pieces)])
        ended = time.perf_counter() - arrived
        return recorded_request(arrived - began, len(prompt), 0.0, first, ended, rounds)

    found = await asyncio.gather(*(one(*each) for each in enumerate(prompts)))
    return _Run(tuple(found), time.perf_counter() - began)


def _outcomes(run: _Run) -> list[RequestOutcome]:
    """Return a real run's requests as the simulator's."""
    return [
        RequestOutcome(
            number=number,
            arrived_s=each.arrived_s,
            prompt_tokens=each.prompt_tokens,
            tokens=each.output_tokens,
            first_s=each.arrived_s + each.ttft_s,
            last_s=each.arrived_s + each.seconds,
            error="",
            rounds=len(each.rounds),
            offered=sum(one.offered for one in each.rounds),
            bought=sum(one.bought for one in each.rounds),
            accepted=sum(len(one.kept) for one in each.rounds),
            verifier_moves=0,
            drafter_attaches=0,
        )
        for number, each in enumerate(run.requests)
    ]


def _simulated(run: _Run, scenario: Scenario, speculate: bool) -> Figures:
    """Return the figures of the same requests, which come when they came."""
    arrivals = [
        Arrival(each.arrived_s, each.prompt_tokens, each.output_tokens) for each in run.requests
    ]
    outcome = simulate(scenario.model_copy(update={"speculate": speculate}), arrivals, 1)
    return figures(outcome.requests, outcome.seconds)


async def _measured(
    config: ForedraftConfig, requests: int, tokens: int, clients: int
) -> tuple[_Run, _Run, _Run]:
    """Return runs of one session, of one that decodes plainly, and of several at once."""
    async with engines(config) as loaded:
        prompts = [
            held_out.fitted(each, loaded.tokenizer, 512, tokens)
            for each in held_out.prompts(requests)
        ]

        async def run(clients: int, speculate: bool) -> _Run:
            return await _run(loaded, config.orchestrator, prompts, clients, tokens, speculate)

        # The first run has the engines warm up.
        await run(1, True)
        return await run(1, True), await run(1, False), await run(clients, True)


def _rows_of(service: VerifierConfig) -> VerifierPoolConfig:
    """Return a pool whose passes have as many rows as the service's."""
    return VerifierPoolConfig(row_budget=service.row_budget, prefill_rows=service.prefill_rows)


def comparable(config: ForedraftConfig) -> ForedraftConfig:
    """Return the configuration of what is compared.

    No simulated text repeats itself; in one process no verifier leads rounds; and simulated pools
    share no cores: here, each engine has one.
    """
    orchestrator = config.orchestrator.model_copy(
        update={"ngram": NgramConfig(), "verifier_led_rounds": 0}
    )
    service = config.verifier.service.model_copy(update={"threads": 1})
    verifier = config.verifier.model_copy(update={"service": service})
    return config.model_copy(update={"orchestrator": orchestrator, "verifier": verifier})


def main(
    folder: Annotated[Path, typer.Option(help="Where run and table go.")] = Path(
        "bench/results/simulator"
    ),
    requests: Annotated[int, typer.Option(min=1, help="Requests of each run.")] = 12,
    tokens: Annotated[int, typer.Option(min=2, help="Tokens of each answer.")] = 96,
    clients: Annotated[int, typer.Option(min=2, help="Sessions at once in the last run.")] = 4,
) -> None:
    """Record one session, simulate it and two other ways, and write embedded.md."""
    folder.mkdir(parents=True, exist_ok=True)
    config = comparable(read(EMBEDDED_FILE).application.args)
    alone, plain, several = asyncio.run(_measured(config, requests, tokens, clients))
    path = folder / "embedded.jsonl.gz"
    header = Header(model=config.name, note="one session after the other, in one process")
    write_run(path, header, alone.requests)
    costs = costs_of(RecordedRun(header=header, requests=alone.requests))
    scenario = played(
        Scenario(orchestrator=config.orchestrator, verifier=_rows_of(config.verifier.service)),
        RecordedConfig(run=path),
        costs,
    )
    rows = [
        (name, figures(_outcomes(run), run.seconds), _simulated(run, scenario, speculate))
        for name, run, speculate in (
            ("one session (recorded)", alone, True),
            ("one session, plain", plain, False),
            (f"{clients} sessions", several, True),
        )
    ]
    table = as_markdown(rows)
    (folder / "embedded.md").write_text(table)
    typer.echo(table)


if __name__ == "__main__":
    typer.run(main)
