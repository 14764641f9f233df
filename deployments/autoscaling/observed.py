"""A pool as a policy is shown it: the signals of its warm replicas, and how many are young."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from deployments.autoscaling.readings import Metrics, Series, signals_of
from deployments.autoscaling.signals import Pool
from deployments.autoscaling.steps import Decision

S = TypeVar("S")


class ObservedPool(Generic[S]):
    """Follows one pool's replicas: a replica is warm warm_up_s seconds after it was first seen."""

    def __init__(self, warm_up_s: float, read: Callable[[Callable[[str], Series]], S]) -> None:
        self._warm_up_s, self._read = warm_up_s, read
        # When each replica was first seen.
        self._seen: dict[str, float] = {}

    def at(
        self,
        now: float,
        replicas: Iterable[str],
        metrics: Metrics,
        target: int,
        bounds: tuple[int, int],
    ) -> Pool[S]:
        """Return the pool: the running replicas, their metrics, how many there are to be."""
        seen = {name: self._seen.get(name, now) for name in replicas}
        self._seen = seen
        warm = [name for name, at in seen.items() if now - at >= self._warm_up_s]
        found = signals_of(metrics, warm, self._read)
        return Pool(found, target, *bounds, young=max(0, target - len(warm)))


def decision_line(pool: str, decision: Decision, dry_run: bool) -> str:
    """Return a decision as it is logged."""
    target, before, wish, reason = decision
    would = " (dry run)" if dry_run else ""
    return f"autoscaling {pool}: {before} -> {target}, wished for {wish}: {reason}{would}"
