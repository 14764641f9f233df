"""A scenario run for real: both services over gRPC on this machine, in real time.

The models are the simulator's, and sleep as long as their passes take. So texts, the luck of drafts
and the picks among replicas are the same as in the simulation, and what differs is what the
simulator has to model: threads, sockets, event loops and the machine.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random

from deployments.serve.routing import PinnedReplicas
from drafter_service import server as drafter_server
from drafter_service.batcher import Batcher
from drafter_service.client import DrafterClient
from drafter_service.config import DrafterConfig
from foredraft.errors import Unavailable
from foredraft.rpc.config import LinkConfig
from foredraft.rpc.server import ServiceServer
from foredraft_simulator.cluster.chance import Chance
from foredraft_simulator.cluster.ingress import SimulatedIngress
from foredraft_simulator.cluster.pool import CHOOSE_TIMEOUT_S
from foredraft_simulator.cluster.replicas import DrafterMaker, VerifierMaker
from foredraft_simulator.outcome import RequestOutcome
from foredraft_simulator.scenario.scenario import Scenario
from foredraft_simulator.traces.arrival import Arrival
from verifier_service import server as verifier_server
from verifier_service.client import VerifierClient
from verifier_service.config import VerifierConfig
from verifier_service.drafters import Drafters
from verifier_service.runner import Runner

# Between two looks for a server that has started.
_LOOK_S = 0.02


@dataclass(frozen=True, slots=True)
class RealRun:
    """What came of a run: every request, and how long all of them took, in seconds."""

    requests: tuple[RequestOutcome, ...]
    seconds: float


@dataclass(slots=True)
class _Services:
    """The servers of both pools."""

    drafters: list[ServiceServer] = field(default_factory=list)
    verifiers: list[ServiceServer] = field(default_factory=list)

    async def choose(self, pool: list[ServiceServer], random: Random, choose_s: float) -> str:
        """Return the address of one of a pool's servers; wait for one as long as Serve's does."""
        await asyncio.sleep(choose_s)
        until = asyncio.get_running_loop().time() + CHOOSE_TIMEOUT_S
        while not pool:
            if asyncio.get_running_loop().time() > until:
                raise Unavailable("no replica is running")
            await asyncio.sleep(_LOOK_S)
        return f"127.0.0.1:{pool[random.randrange(len(pool))].port}"


async def run_real(scenario: Scenario, arrivals: Sequence[Arrival], seed: int) -> RealRun:
    """Return a run of requests in a scenario, in the order of their times.

    Of failures it knows lost drafters alone.
    """
    drafter, verifier = scenario.drafter, scenario.verifier
    maker = DrafterMaker(
        drafter, scenario.acceptance.acceptance(seed), [each.prompt_tokens for each in arrivals]
    )
    to_drafter = partial(DrafterClient, link=_link(drafter.link.delay_ms, drafter.link.jitter_ms))
    to_verifier = partial(
        VerifierClient, link=_link(verifier.link.delay_ms, verifier.link.jitter_ms)
    )
    async with _services(scenario, maker, to_drafter) as services:
        choose_s, chance = scenario.serve.choose_s, Chance.of(seed)
        ingress = SimulatedIngress(
            scenario.ingress,
            scenario.orchestrator,
            scenario.speculate,
            PinnedReplicas(
                partial(services.choose, services.drafters, chance.drafters, choose_s), to_drafter
            ),
            PinnedReplicas(
                partial(services.choose, services.verifiers, chance.verifiers, choose_s),
                to_verifier,
            ),
        )
        loop = asyncio.get_running_loop()
        began = loop.time()
        failing = asyncio.create_task(_fail(scenario, services, maker))
        tasks = []
        for number, arrival in enumerate(arrivals):
            await asyncio.sleep(began + arrival.time_s - loop.time())
            tasks.append(asyncio.create_task(ingress.serve(number, arrival)))
        requests = tuple(await asyncio.gather(*tasks))
        seconds = loop.time() - began
        failing.cancel()
    return RealRun(requests, seconds)


@asynccontextmanager
async def _services(
    scenario: Scenario, maker: DrafterMaker, connect: partial[DrafterClient]
) -> AsyncIterator[_Services]:
    services = _Services()
    config = scenario.verifier
    try:
        for _ in range(scenario.drafter.replicas):
            services.drafters.append(await _drafter(maker))
        verifiers = VerifierMaker(config, lambda _: connect)
        for _ in range(config.replicas):
            runner = Runner(partial(verifiers.engine, time.perf_counter, time.sleep))
            services.verifiers.append(
                await verifier_server.serve_engine(
                    VerifierConfig(model=Path()),
                    runner,
                    drafters=Drafters(connect if config.leads_rounds else None),
                )
            )
        yield services
    finally:
        for server in (*services.drafters, *services.verifiers):
            await server.stop()


async def _drafter(maker: DrafterMaker) -> ServiceServer:
    config = DrafterConfig(model=Path())
    batcher = Batcher(partial(maker.engine, time.sleep), config.max_queue)
    return await drafter_server.serve_engine(batcher, config)


async def _fail(scenario: Scenario, services: _Services, maker: DrafterMaker) -> None:
    """End drafters by the scenario, and start others in their place."""
    began = asyncio.get_running_loop().time()
    for failure in scenario.failures:
        assert (failure.pool, failure.kind) == ("drafter", "lost")
        await asyncio.sleep(began + failure.at_s - asyncio.get_running_loop().time())
        for _ in range(failure.replicas):
            await services.drafters.pop(0).stop()
        await asyncio.sleep(scenario.serve.replace_s + scenario.drafter.cold_start_s)
        for _ in range(failure.replicas):
            services.drafters.append(await _drafter(maker))


def _link(delay_ms: float, jitter_ms: float) -> LinkConfig:
    return LinkConfig(delay_ms=delay_ms, jitter_ms=jitter_ms)
