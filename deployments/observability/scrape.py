"""The metrics of one process as Prometheus reads them: GET /metrics of an ingress replica."""

from __future__ import annotations

from collections.abc import Iterable

from fastapi import FastAPI
from fastapi.responses import Response
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from deployments.observability.metrics import Kind, Metric, Sample


class Scrape:
    """Metrics of this process, without the labels that Serve adds to those that Ray exports."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._registry = CollectorRegistry()
        self._metrics = {metric.name: self._made(metric) for metric in metrics}

    def add(self, samples: Iterable[Sample]) -> None:
        """Add to the counters, set the gauges, observe."""
        for name, value, labels in samples:
            metric = self._metrics[name]
            found = metric.labels(**labels) if labels else metric
            if isinstance(found, Gauge):
                found.set(value)
            elif isinstance(found, Histogram):
                found.observe(value)
            else:
                found.inc(value)

    def text(self) -> bytes:
        """Return all of them in Prometheus' text format."""
        return generate_latest(self._registry)

    def _made(self, metric: Metric) -> Counter | Gauge | Histogram:
        named = metric.name, metric.meaning, metric.labels
        if metric.kind is Kind.COUNTER:
            return Counter(*named, registry=self._registry)
        if metric.kind is Kind.GAUGE:
            return Gauge(*named, registry=self._registry)
        return Histogram(*named, registry=self._registry, buckets=metric.buckets)


def install(app: FastAPI, scrape: Scrape) -> None:
    """Add the route."""

    @app.get("/metrics", response_class=Response)
    async def metrics() -> Response:
        """What this ingress replica has counted; Ray's endpoints have all replicas' metrics."""
        return Response(scrape.text(), media_type=CONTENT_TYPE_PLAIN_0_0_4)
