"""The scaler as Ray Serve's application-level autoscaling policy.

    autoscaling_policy:
      policy_function: deployments.autoscaling.serve_policy:ScalingPolicy
      policy_kwargs: {policy: goodput}

Serve makes it once in its controller and calls it in every turn of its loop. It never raises: an
exception would end the turn for every application of the cluster.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any, TypeVar

from ray.util.metrics import Gauge

from deployments.autoscaling.config import ScalingConfig
from deployments.autoscaling.observed import ObservedPool, decision_line
from deployments.autoscaling.readings import drafter_signal, plain, verifier_signal
from deployments.autoscaling.scaler import Scaler
from deployments.autoscaling.signals import DrafterSignal, Pool, PoolName, Signals, VerifierSignal
from deployments.autoscaling.steps import Decision
from deployments.serve.platform import remember
from foredraft.strict import parse

# Serve's own logger: its controller writes it to a file.
log = logging.getLogger("ray.serve")

S = TypeVar("S")

# By deployment.
_Contexts = Mapping[Any, Any]


class ScalingPolicy:
    """Scales the pools `drafter` and `verifier` of one application together."""

    def __init__(self, **settings: Any) -> None:
        self._config = parse(ScalingConfig, settings)
        self._scaler = Scaler(self._config)
        self._next = 0.0
        warm_up_s = self._config.warm_up_s
        self._drafters: ObservedPool[DrafterSignal] = ObservedPool(warm_up_s, drafter_signal)
        self._verifiers: ObservedPool[VerifierSignal] = ObservedPool(warm_up_s, verifier_signal)
        self._said: dict[PoolName, tuple[int, int]] = {}
        self._told: dict[PoolName, dict[str, Any]] = {}
        self._gauges = {
            name: Gauge(f"foredraft_autoscaling_{name}_replicas", text, tag_keys=("pool",))
            for name, text in (
                ("wished", "Replicas that the policy wishes for."),
                ("target", "Replicas that it decided on."),
            )
        }

    def __call__(self, contexts: _Contexts) -> tuple[dict[Any, int], dict[Any, dict[str, Any]]]:
        """Return the number of replicas of each deployment that is to change."""
        try:
            return self._decided(contexts), {}
        except Exception:
            log.exception("the autoscaling policy failed; nothing is scaled")
            return {}, {}

    def _decided(self, contexts: _Contexts) -> dict[Any, int]:
        pools = {ctx.deployment_name: (key, ctx) for key, ctx in contexts.items()}
        if not {PoolName.DRAFTER, PoolName.VERIFIER} <= pools.keys():
            return {}
        now = pools[PoolName.VERIFIER][1].current_time
        if now is None or now < self._next:
            return {}
        self._next = now + self._config.interval_s
        signals = Signals(
            now,
            _pool(self._drafters, pools[PoolName.DRAFTER][1], now),
            _pool(self._verifiers, pools[PoolName.VERIFIER][1], now),
        )
        found: dict[Any, int] = {}
        for pool, decision in self._scaler.decide(signals).items():
            if self._is_news(pool, decision):
                self._tell(pools[pool][1].app_name, pool, decision, now)
            if decision.target != decision.before and not self._config.dry_run:
                found[pools[pool][0]] = decision.target
        return found

    def _is_news(self, pool: PoolName, decision: Decision) -> bool:
        tags = {"pool": str(pool)}
        self._gauges["wished"].set(decision.wish, tags)
        self._gauges["target"].set(decision.target, tags)
        said = decision.target, decision.wish
        news = self._said.get(pool) != said
        self._said[pool] = said
        return news

    def _tell(self, application: str, pool: PoolName, decision: Decision, now: float) -> None:
        log.info("%s", decision_line(pool, decision, self._config.dry_run))
        self._told[pool] = decision._asdict() | {"at": now, "dry_run": self._config.dry_run}
        remember(decisions_key(application), json.dumps(self._told).encode())


def _pool(observed: ObservedPool[S], context: Any, now: float) -> Pool[S]:
    """Return a pool as Serve's context shows it."""
    return observed.at(
        now,
        map(str, context.running_replicas),
        plain(context.raw_metrics or {}),
        context.target_num_replicas,
        (context.capacity_adjusted_min_replicas, context.capacity_adjusted_max_replicas),
    )


def decisions_key(application: str) -> str:
    """Return the name under which the cluster keeps an application's newest decisions, by pool."""
    return f"foredraft:autoscaling:{application}"
