"""Where traces go: an OpenTelemetry collector, or nowhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from foredraft.errors import ConfigError
from foredraft.strict import StrictModel

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider


class TracingConfig(StrictModel):
    """Where traces go."""

    endpoint: str | None = Field(
        default=None,
        pattern=r"^https?://",
        description="URL of a collector that takes OTLP over HTTP, as "
        "http://127.0.0.1:4318/v1/traces; null: no traces. Needs the extra trace.",
    )
    ratio: float = Field(
        default=1.0,
        ge=0,
        le=1,
        description="Share of the requests that are traced, where the client does not say.",
    )


def provider_of(config: TracingConfig) -> TracerProvider | None:
    """Return what exports spans, None where no endpoint is configured.

    Raise ConfigError where the exporter is not installed.
    """
    if config.endpoint is None:
        return None
    # Imported where they are configured: they take a tenth of a second.
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        message = "ingress.tracing.endpoint needs the extra trace: pip install 'foredraft[trace]'"
        raise ConfigError(message, param="ingress.tracing.endpoint") from None
    provider = TracerProvider(
        ParentBased(TraceIdRatioBased(config.ratio)), Resource.create({"service.name": "foredraft"})
    )
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(config.endpoint)))
    return provider
