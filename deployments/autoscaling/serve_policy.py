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
from collections.abc import Callable, Mapping
from typing import Any

from ray.util.metrics import Gauge

from deployments.autoscaling.config import ScalingConfig
from deployments.autoscaling.readings import drafter_signal, plain, signals_of, verifier_signal
from deployments.autoscaling.scaler import Scaler
from deployments.autoscaling.signals import Pool, PoolName, Signals
from deployments.autoscaling.steps import Decision
from deployments.serve.platform import remember
from foredraft.strict import parse

# Serve's own logger: its controller writes it to a file.
log = logging.getLogger("ray.serve")

# By deployment.
_Contexts = Mapping[Any, Any]


class ScalingPolicy:
    """Scales the pools `drafter` and `verifier` of one application together."""

    def __init__(self, **settings: Any) -> None:
        self._config = parse(ScalingConfig, settings)
        self._scaler = Scaler(self._config)
        self._next = 0.0
        # When each replica of a pool was first seen.
        self._seen: dict[PoolName, dict[str, float]] = {pool: {} for pool in PoolName}
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
            self._pool(PoolName.DRAFTER, pools[PoolName.DRAFTER][1], now, drafter_signal),
            self._pool(PoolName.VERIFIER, pools[PoolName.VERIFIER][1], now, verifier_signal),
        )
        found: dict[Any, int] = {}
        for pool, decision in self._scaler.decide(signals).items():
            if self._is_news(pool, decision):
                self._tell(pools[pool][1].app_name, pool, decision, now)
            if decision.target != decision.before and not self._config.dry_run:
                found[pools[pool][0]] = decision.target
        return found

    def _pool(
        self, pool: PoolName, context: Any, now: float, read: Callable[..., Any]
    ) -> Pool[Any]:
        """Return a pool's warm replicas, as far as they have reported."""
        before = self._seen[pool]
        seen = {str(each): before.get(str(each), now) for each in context.running_replicas}
        self._seen[pool] = seen
        warm = [name for name, at in seen.items() if now - at >= self._config.warm_up_s]
        found = signals_of(plain(context.raw_metrics or {}), warm, read)
        return Pool(
            found,
            context.target_num_replicas,
            context.capacity_adjusted_min_replicas,
            context.capacity_adjusted_max_replicas,
            young=max(0, context.target_num_replicas - len(warm)),
        )

    def _is_news(self, pool: PoolName, decision: Decision) -> bool:
        tags = {"pool": str(pool)}
        self._gauges["wished"].set(decision.wish, tags)
        self._gauges["target"].set(decision.target, tags)
        said = decision.target, decision.wish
        news = self._said.get(pool) != said
        self._said[pool] = said
        return news

    def _tell(self, application: str, pool: PoolName, decision: Decision, now: float) -> None:
        target, before, wish, reason = decision
        would = " (dry run)" if self._config.dry_run else ""
        log.info(
            "autoscaling %s: %d -> %d, wished for %d: %s%s",
            pool,
            before,
            target,
            wish,
            reason,
            would,
        )
        self._told[pool] = decision._asdict() | {"at": now, "dry_run": self._config.dry_run}
        remember(decisions_key(application), json.dumps(self._told).encode())


def decisions_key(application: str) -> str:
    """Return the name under which the cluster keeps an application's newest decisions, by pool."""
    return f"foredraft:autoscaling:{application}"
