"""Metrics on their way to Ray's Prometheus endpoint, from the replicas' processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from ray.serve.metrics import Counter, Gauge

from deployments.observability.metrics import (
    INGRESS,
    SERVICES,
    Kind,
    Metric,
    Sample,
    of_request,
    of_stats,
)
from orchestrator.report import SpeculationReport

# Ray sends on what it was told every ten seconds.
_EXPORT_S = 5.0


class Export:
    """Metrics of one replica; make it inside one."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._counters: dict[str, Any] = {}
        self._gauges: dict[str, Any] = {}
        for metric in metrics:
            if metric.kind is Kind.COUNTER:
                counter: Any = Counter
                self._counters[metric.name] = counter(metric.name, metric.meaning, metric.labels)
            else:
                self._gauges[metric.name] = Gauge(metric.name, metric.meaning)

    def add(self, samples: Iterable[Sample]) -> None:
        """Add to the counters, set the gauges."""
        for name, value, labels in samples:
            if (gauge := self._gauges.get(name)) is not None:
                gauge.set(value)
            elif value > 0:
                self._counters[name].inc(value, labels)


class RequestMetrics:
    """What the ingress counts, once for each request: at its end, from its report."""

    def __init__(self) -> None:
        self._export = Export(INGRESS)

    def ended(self, report: SpeculationReport) -> None:
        """Count a request that ended."""
        self._export.add(of_request(report))


async def export_stats(package: str, stats: Callable[[], dict[str, float]]) -> None:
    """Export a service's stats until cancelled."""
    export = Export(SERVICES[package].values())
    before: dict[str, float] = {}
    while True:
        now = stats()
        export.add(of_stats(package, now, before))
        before = now
        await asyncio.sleep(_EXPORT_S)
