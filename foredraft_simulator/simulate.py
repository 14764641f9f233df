"""One simulation: a scenario and the requests that arrive in it."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from deployments.serve.routing import PinnedReplicas
from foredraft.errors import InvalidRequest
from foredraft.limits import check_range
from foredraft_simulator.cluster.autoscaler import Autoscaler
from foredraft_simulator.cluster.chance import Chance
from foredraft_simulator.cluster.ingress import SimulatedIngress
from foredraft_simulator.cluster.pool import SimulatedPool
from foredraft_simulator.cluster.replicas import DrafterMaker, VerifierMaker
from foredraft_simulator.models.texts import MAX_LEN, MAX_REQUESTS
from foredraft_simulator.outcome import Outcome, PoolOutcome, RequestOutcome, Waste
from foredraft_simulator.scenario.scenario import FailureConfig, Scenario
from foredraft_simulator.services.drafters import DrafterReplica, SimulatedDrafterClient
from foredraft_simulator.services.link import Host, Network
from foredraft_simulator.services.verifiers import SimulatedVerifierClient, VerifierReplica
from foredraft_simulator.traces.arrival import Arrival
from foredraft_simulator.virtual.loop import run_virtual


def simulate(scenario: Scenario, arrivals: Sequence[Arrival], seed: int = 0) -> Outcome:
    """Return what comes of requests in a scenario; the same seed gives the same outcome.

    Requests are numbered in the order of their times. Raise InvalidRequest for one that no model
    holds.
    """
    check_range("number of requests", len(arrivals), 1, MAX_REQUESTS)
    for number, each in enumerate(arrivals):
        longest = each.prompt_tokens + each.output_tokens
        if min(each.prompt_tokens, each.output_tokens) < 1 or longest > MAX_LEN // 2:
            raise InvalidRequest(f"request {number} has impossible lengths", param="arrivals")
        if not 0 <= each.time_s < math.inf:
            raise InvalidRequest(f"request {number} has an impossible time", param="arrivals")
    ordered = sorted(arrivals, key=lambda each: each.time_s)
    with _silent("orchestrator"):
        return run_virtual(_Cluster.simulated(scenario, ordered, seed))


@contextmanager
def _silent(name: str) -> Iterator[None]:
    """Keep back a logger's lines: what goes wrong in a scenario is in its figures."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


class _Cluster:
    """The simulated cluster; made inside its loop."""

    def __init__(self, scenario: Scenario, arrivals: Sequence[Arrival], seed: int) -> None:
        self._scenario, self._arrivals = scenario, arrivals
        self._loop = asyncio.get_running_loop()
        chance = Chance.of(seed)
        drafter, verifier = scenario.drafter, scenario.verifier
        self._to_drafters = Network(drafter.link, chance.to_drafters)
        self._to_verifiers = Network(verifier.link, chance.to_verifiers)
        acceptance = scenario.acceptance.acceptance(seed)
        self._maker = DrafterMaker(drafter, acceptance, [each.prompt_tokens for each in arrivals])
        self._drafters: SimulatedPool[DrafterReplica] = SimulatedPool(
            "drafter", drafter, scenario.serve, self._maker, chance.drafters
        )
        self._verifiers: SimulatedPool[VerifierReplica] = SimulatedPool(
            "verifier",
            verifier,
            scenario.serve,
            VerifierMaker(verifier, lambda host: partial(self._drafter, host=host)),
            chance.verifiers,
        )
        self._ingresses = [self._ingress() for _ in range(scenario.ingress.replicas)]
        self._scaler = scenario.scaling and Autoscaler(
            scenario.scaling,
            scenario.serve,
            self._drafters,
            self._verifiers,
            chance.reports,
        )

    @classmethod
    async def simulated(cls, scenario: Scenario, arrivals: Sequence[Arrival], seed: int) -> Outcome:
        """Return the outcome."""
        began = time.perf_counter()
        cluster = cls(scenario, arrivals, seed)
        requests, seconds = await cluster._run()
        return cluster._outcome(requests, seconds, time.perf_counter() - began)

    def _drafter(self, address: str, host: Host) -> SimulatedDrafterClient:
        return SimulatedDrafterClient(self._drafters.find(address), self._to_drafters, host)

    def _ingress(self) -> SimulatedIngress:
        scenario, clock = self._scenario, self._loop.time
        host = Host(scenario.ingress.message_s)
        return SimulatedIngress(
            scenario.ingress,
            scenario.orchestrator,
            scenario.speculate,
            PinnedReplicas(self._drafters.choose, partial(self._drafter, host=host), clock),
            PinnedReplicas(
                self._verifiers.choose,
                lambda address: SimulatedVerifierClient(
                    self._verifiers.find(address), self._to_verifiers, host
                ),
                clock,
            ),
        )

    async def _run(self) -> tuple[list[RequestOutcome], float]:
        """Return every request's outcome, and how long all of them took."""
        for failure in self._scenario.failures:
            self._loop.call_at(failure.at_s, self._fail, failure)
        scaling = asyncio.create_task(self._scaler.run()) if self._scaler else None
        tasks = []
        for number, arrival in enumerate(self._arrivals):
            await asyncio.sleep(arrival.time_s - self._loop.time())
            ingress = self._ingresses[number % len(self._ingresses)]
            tasks.append(asyncio.create_task(ingress.serve(number, arrival)))
        requests = list(await asyncio.gather(*tasks))
        seconds = self._loop.time()
        await asyncio.sleep(self._scenario.settle_s)
        if scaling is not None:
            scaling.cancel()
        return requests, seconds

    def _fail(self, failure: FailureConfig) -> None:
        pool: SimulatedPool[DrafterReplica] | SimulatedPool[VerifierReplica]
        pool, network = self._verifiers, self._to_verifiers
        if failure.pool == "drafter":
            pool, network = self._drafters, self._to_drafters
        if failure.kind == "lost":
            pool.lose(failure.replicas)
        elif failure.kind == "stall":
            pool.stall(failure.replicas, failure.for_s)
        else:
            network.cut(self._loop.time() + failure.for_s)

    def _outcome(
        self, requests: Sequence[RequestOutcome], seconds: float, wall_s: float
    ) -> Outcome:
        pools = {
            pool.name: PoolOutcome(
                tuple(pool.sizes),
                self._loop.time(),
                pool.replica_seconds,
                pool.replica_seconds * pool.config.price,
            )
            for pool in (self._drafters, self._verifiers)
        }
        waste = Waste(
            self._maker.drafted,
            sum(each.offered for each in requests),
            sum(each.bought for each in requests),
            sum(each.accepted for each in requests),
        )
        events = len(requests) + self._to_drafters.messages + self._to_verifiers.messages
        events += self._drafters.steps + self._verifiers.steps
        if self._scaler:
            events += self._scaler.steps
        decisions = tuple(self._scaler.decisions) if self._scaler else ()
        return Outcome(tuple(requests), pools, decisions, waste, seconds, events, wall_s)
