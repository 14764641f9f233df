"""Serve's controller with our policy: replicas report, what they reported is looked back at."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from deployments.autoscaling.config import ScalingConfig
from deployments.autoscaling.observed import ObservedPool, decision_line
from deployments.autoscaling.readings import drafter_signal, verifier_signal
from deployments.autoscaling.scaler import Scaler
from deployments.autoscaling.signals import PoolName, Signals
from foredraft_simulator.cluster.pool import SimulatedPool
from foredraft_simulator.scenario.scenario import ServeConfig


class Decided(NamedTuple):
    """A decision that was logged: at a time, for a pool, with the policy's line."""

    time_s: float
    pool: str
    before: int
    target: int
    wish: int
    line: str


class Reports:
    """What a pool's replicas reported, as Serve's controller has it."""

    def __init__(self, pool: SimulatedPool[Any], serve: ServeConfig) -> None:
        self._pool, self._serve = pool, serve
        self._read: list[tuple[float, str, dict[str, float]]] = []
        self._known: dict[str, dict[str, list[tuple[float, float]]]] = {}

    def record(self, now: float) -> None:
        """Read every replica's signals."""
        for replica in self._pool.serving:
            self._read.append((now, replica.address, replica.engine.stats()))

    def push(self, now: float) -> None:
        """Send the controller what was read before now: at a moment of both, Serve sends first."""
        for at, address, stats in self._read:
            if at < now:
                for name, value in stats.items():
                    self._known.setdefault(name, {}).setdefault(address, []).append((at, value))
        self._read = [each for each in self._read if each[0] >= now]
        serving = {replica.address for replica in self._pool.serving}
        oldest = now - self._serve.look_back_s
        for by_replica in self._known.values():
            for address in list(by_replica):
                if address not in serving:
                    del by_replica[address]
                    continue
                by_replica[address] = [each for each in by_replica[address] if each[0] >= oldest]
                if not by_replica[address]:
                    del by_replica[address]

    @property
    def metrics(self) -> dict[str, dict[str, list[tuple[float, float]]]]:
        """The series by a metric's name and a replica."""
        return self._known


class Autoscaler:
    """Decides for both pools as long as `run` runs."""

    def __init__(
        self,
        config: ScalingConfig,
        serve: ServeConfig,
        drafters: SimulatedPool[Any],
        verifiers: SimulatedPool[Any],
        random: Random,
    ) -> None:
        self._config, self._serve, self._random = config, serve, random
        self._pools = {PoolName.DRAFTER: drafters, PoolName.VERIFIER: verifiers}
        self._reports = {name: Reports(pool, serve) for name, pool in self._pools.items()}
        self._drafters = ObservedPool(config.warm_up_s, drafter_signal)
        self._verifiers = ObservedPool(config.warm_up_s, verifier_signal)
        self._scaler = Scaler(config)
        self._reported: dict[PoolName, tuple[int, int]] = {}
        self.decisions: list[Decided] = []
        self.steps = 0

    async def run(self) -> None:
        """Record, push and decide, each at its own pace."""
        async with asyncio.TaskGroup() as tasks:
            for reports in self._reports.values():
                # Replicas report every so many seconds of their own life, not of the load's.
                since = _now() - self._random.random() * self._serve.push_s
                tasks.create_task(_every(self._serve.record_s, since, reports.record))
                tasks.create_task(_every(self._serve.push_s, since, reports.push))
            tasks.create_task(self._deciding())

    async def _deciding(self) -> None:
        while True:
            await asyncio.sleep(self._config.interval_s)
            self._decide(_now())

    def _decide(self, now: float) -> None:
        self.steps += 1
        signals = Signals(
            now,
            self._drafters.at(now, *self._shown(PoolName.DRAFTER)),
            self._verifiers.at(now, *self._shown(PoolName.VERIFIER)),
        )
        for name, decision in self._scaler.decide(signals).items():
            decided = decision.target, decision.wish
            if self._reported.get(name) != decided:
                self._reported[name] = decided
                line = decision_line(name, decision, self._config.dry_run)
                target, before, wish, _ = decision
                self.decisions.append(Decided(now, str(name), before, target, wish, line))
            if decision.target != decision.before and not self._config.dry_run:
                self._pools[name].scale(decision.target)

    def _shown(self, name: PoolName) -> tuple[list[str], Any, int, tuple[int, int]]:
        pool = self._pools[name]
        names = [replica.address for replica in pool.serving]
        return names, self._reports[name].metrics, pool.target, pool.config.bounds


async def _every(seconds: float, since: float, act: Callable[[float], None]) -> None:
    """Act at every multiple of some seconds after a time; until cancelled."""
    while True:
        since += seconds
        await asyncio.sleep(max(0.0, since - _now()))
        act(since)


def _now() -> float:
    return asyncio.get_running_loop().time()
