"""OpenTelemetry: one trace of a request, made at its end from what its rounds report.

The request, in it a span for each round, and in that what the drafter and the verifier did: the
services' own times travel with every answer, so no span is made beside a forward pass.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar

from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.types import ASGIApp, Receive, Scope, Send

from deployments.ingress.stream.ended import Ended
from orchestrator.request import StepEvent

_PROPAGATOR = TraceContextTextMapPropagator()
_HEADERS = (b"traceparent", b"tracestate")
_parent: ContextVar[Context | None] = ContextVar("parent", default=None)


class Traces:
    """Makes a trace of each session that ended; now is the wall clock, in nanoseconds."""

    def __init__(
        self, model: str, provider: TracerProvider, now: Callable[[], int] = time.time_ns
    ) -> None:
        self._model, self._now = model, now
        self._tracer = provider.get_tracer("foredraft")

    def ended(self, prompt_tokens: int, ended: Ended) -> None:
        """Make the spans of a session that ended just now, in the trace of its request."""
        until = self._now()
        start = until - _ns(ended.seconds)
        request = self._tracer.start_span(
            "generate",
            _parent.get(),
            SpanKind.SERVER,
            {
                "gen_ai.request.model": self._model,
                "gen_ai.usage.input_tokens": prompt_tokens,
                "gen_ai.usage.output_tokens": ended.tokens,
                "foredraft.rounds": ended.report.rounds,
                "foredraft.accepted_tokens": ended.report.num_accepted,
            },
            start_time=start,
        )
        if request.is_recording():
            if ended.finish is None:
                request.set_status(Status(StatusCode.ERROR, "failed, or its client left"))
            else:
                request.set_attribute("gen_ai.response.finish_reasons", [str(ended.finish)])
            for event in ended.rounds:
                self._round(request, start, event)
        request.end(until)

    def _round(self, request: Span, start: int, event: StepEvent) -> None:
        stats, drafted = event.stats, event.drafted
        began = start + _ns(stats.began_s)
        drafted_at = began + _ns(stats.draft_wait_s)
        until = drafted_at + _ns(stats.verify_s)
        span = self._tracer.start_span(
            "round",
            set_span_in_context(request),
            attributes={
                "foredraft.k": stats.decision.k,
                "foredraft.reason": stats.decision.reason,
                "foredraft.offered_tokens": stats.num_draft_tokens,
                "foredraft.bought_tokens": stats.num_bought,
                "foredraft.accepted_tokens": stats.num_accepted,
                "foredraft.committed_tokens": len(event.tokens),
                "foredraft.led_by": "verifier" if stats.verifier_led else "orchestrator",
            },
            start_time=began,
        )
        inside = set_span_in_context(span)
        if drafted.tokens and not stats.ngram:
            # Placed at the latest that it can have ended.
            self._service("draft", inside, drafted_at, drafted.timings.compute_us)
        timings = stats.verify_timings
        passed = drafted_at + 1000 * (timings.queue_us + timings.compute_us)
        self._service("verify", inside, min(passed, until), timings.compute_us)
        span.end(until)

    def _service(self, name: str, context: Context, until: int, took_us: int) -> None:
        span = self._tracer.start_span(
            name, context, SpanKind.CLIENT, start_time=until - 1000 * took_us
        )
        span.end(until)


class TraceParent:
    """An ASGI app around another one, which remembers the trace that a request belongs to."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] == "http":
            found = {k.decode(): v.decode("latin-1") for k, v in scope["headers"] if k in _HEADERS}
            remember_parent(found)
        await self._app(scope, receive, send)


def remember_parent(headers: Mapping[str, str]) -> None:
    """Remember the trace that the request of this task belongs to."""
    _parent.set(_PROPAGATOR.extract(headers))


def _ns(seconds: float) -> int:
    return int(1e9 * seconds)
