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
from collections import deque
from collections.abc import Mapping
from typing import Any, TypeVar

from ray.util.metrics import Gauge

from deployments.autoscaling.config import ScalingConfig
from deployments.autoscaling.names import decisions_key, settings_key
from deployments.autoscaling.observed import ObservedPool, decision_line
from deployments.autoscaling.readings import drafter_signal, plain, verifier_signal
from deployments.autoscaling.scaler import Scaler
from deployments.autoscaling.signals import DrafterSignal, Pool, PoolName, Signals, VerifierSignal
from deployments.autoscaling.steps import Decision
from deployments.serve.memory import remember, remembered
from foredraft.strict import parse

# Serve's own logger: its controller writes it to a file.
log = logging.getLogger("ray.serve")

S = TypeVar("S")

# By deployment.
_Contexts = Mapping[Any, Any]

# Of both pools together.
_KEPT_CHANGES = 256


class ScalingPolicy:
    """Scales the pools `drafter` and `verifier` of one application together.

    settings are those of ScalingConfig; kept is true where the cluster keeps them (settings_key).
    """

    def __init__(self, kept: bool = False, **settings: Any) -> None:
        self._follow(parse(ScalingConfig, settings))
        # What the cluster keeps for it, if anything: what changes there replaces no replica.
        self._looks, self._kept = kept, b""
        self._next = 0.0
        self._reported: dict[PoolName, tuple[int, int]] = {}
        self._newest: dict[PoolName, dict[str, Any]] = {}
        self._changes: deque[dict[str, Any]] = deque(maxlen=_KEPT_CHANGES)
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
        self._renew(pools[PoolName.VERIFIER][1].app_name)
        self._next = now + self._config.interval_s
        signals = Signals(
            now,
            _pool(self._drafters, pools[PoolName.DRAFTER][1], now),
            _pool(self._verifiers, pools[PoolName.VERIFIER][1], now),
        )
        found: dict[Any, int] = {}
        for pool, decision in self._scaler.decide(signals).items():
            if self._is_news(pool, decision):
                self._record(pools[pool][1].app_name, pool, decision, now)
            if decision.target != decision.before and not self._config.dry_run:
                found[pools[pool][0]] = decision.target
        return found

    def _renew(self, application: str) -> None:
        """Take over other settings, where the cluster keeps some."""
        kept = remembered(settings_key(application)) if self._looks else None
        if kept and kept != self._kept:
            self._kept = kept
            self._follow(parse(ScalingConfig, json.loads(kept)))

    def _follow(self, config: ScalingConfig) -> None:
        self._config = config
        self._scaler = Scaler(config)
        self._drafters: ObservedPool[DrafterSignal]
        self._verifiers: ObservedPool[VerifierSignal]
        self._drafters = ObservedPool(config.warm_up_s, drafter_signal)
        self._verifiers = ObservedPool(config.warm_up_s, verifier_signal)

    def _is_news(self, pool: PoolName, decision: Decision) -> bool:
        tags = {"pool": str(pool)}
        self._gauges["wished"].set(decision.wish, tags)
        self._gauges["target"].set(decision.target, tags)
        decided = decision.target, decision.wish
        news = self._reported.get(pool) != decided
        self._reported[pool] = decided
        return news

    def _record(self, application: str, pool: PoolName, decision: Decision, now: float) -> None:
        log.info("%s", decision_line(pool, decision, self._config.dry_run))
        found = decision._asdict() | {"at": now, "dry_run": self._config.dry_run}
        self._newest[pool] = found
        if decision.target != decision.before:
            self._changes.append({"pool": str(pool)} | found)
        kept = {"newest": self._newest, "changes": list(self._changes)}
        remember(decisions_key(application), json.dumps(kept).encode())


def _pool(observed: ObservedPool[S], context: Any, now: float) -> Pool[S]:
    """Return a pool as Serve's context shows it."""
    return observed.at(
        now,
        map(str, context.running_replicas),
        plain(context.raw_metrics or {}),
        context.target_num_replicas,
        (context.capacity_adjusted_min_replicas, context.capacity_adjusted_max_replicas),
    )
