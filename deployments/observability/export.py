"""Metrics on their way to Ray's Prometheus endpoint, from the replicas' processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from ray.serve.metrics import Counter, Gauge, Histogram

from deployments.observability.metrics import SERVICES, Kind, Metric, Sample, of_stats

# Ray sends on what it was named every ten seconds.
_EXPORT_S = 5.0


class Export:
    """Metrics of one replica; make it inside one."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = {metric.name: _made(metric) for metric in metrics}

    def add(self, samples: Iterable[Sample]) -> None:
        """Add to the counters, set the gauges, observe."""
        for name, value, labels in samples:
            metric = self._metrics[name]
            if isinstance(metric, Gauge):
                metric.set(value, dict(labels))
            elif isinstance(metric, Histogram):
                metric.observe(value)
            elif value > 0:
                metric.inc(value, labels)


def _made(metric: Metric) -> Any:
    named = metric.name, metric.meaning
    if metric.kind is Kind.COUNTER:
        counter: Any = Counter
        return counter(*named, metric.labels)
    if metric.kind is Kind.GAUGE:
        gauge: Any = Gauge
        return gauge(*named, metric.labels)
    return Histogram(*named, boundaries=list(metric.buckets))


async def export_stats(package: str, stats: Callable[[], dict[str, float]]) -> None:
    """Export a service's stats until cancelled."""
    export = Export(SERVICES[package].values())
    before: dict[str, float] = {}
    while True:
        now = stats()
        export.add(of_stats(package, now, before))
        before = now
        await asyncio.sleep(_EXPORT_S)
