"""Traces: one for each session, with its rounds and what both services did in them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import grpc
import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from deployments.canary.arms import OneArm
from deployments.ingress.doors.admission import Admission
from deployments.ingress.generations import Generations
from deployments.ingress.openai.routes import Handlers, application, handlers
from deployments.ingress.rpc.calls import Calls
from deployments.ingress.rpc.config import RpcConfig
from deployments.ingress.rpc.server import RpcServer
from deployments.observability.collector import TracingConfig, provider_of
from deployments.observability.tracing import TraceParent, Traces
from foredraft.v1 import generation_pb2 as pb
from foredraft.v1 import generation_pb2_grpc
from tests.support.cluster import free_port
from tests.support.http import listening
from tests.support.orchestrator.peers import MODEL, ScriptedDrafter, ScriptedVerifier, config
from tests.unit.ingress.test_routes import PROMPT, TOKENIZER, TOKENIZER_FILE

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
BODY: dict[str, Any] = {"prompt": PROMPT, "max_tokens": 12, "temperature": 0}


def traced(provider: TracerProvider) -> Handlers:
    traces = Traces("scripted", provider)
    made = Generations(
        "scripted",
        MODEL,
        TOKENIZER,
        config(),
        OneArm(ScriptedDrafter()),
        ScriptedVerifier(),
        traces.ended,
    )
    return handlers(made, TOKENIZER_FILE)


@asynccontextmanager
async def served(provider: TracerProvider) -> AsyncIterator[str]:
    async def health() -> dict[str, Any]:
        return {}

    app = application(traced(provider), health)
    app.add_middleware(TraceParent)
    async with listening(app) as url:
        yield f"{url}/v1/completions"


async def spans(body: dict[str, Any], **headers: str) -> list[ReadableSpan]:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    async with (
        served(provider) as url,
        aiohttp.ClientSession() as http,
        http.post(url, json=body, headers=headers) as answer,
    ):
        await answer.read()
    return list(exporter.get_finished_spans())


def of(found: list[ReadableSpan], name: str) -> list[ReadableSpan]:
    return [span for span in found if span.name == name]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_session_is_one_trace_of_its_clients(stream: bool) -> None:
    traceparent = f"00-{TRACE}-{PARENT}-01"
    found = await spans(BODY | {"stream": stream}, traceparent=traceparent)
    [request] = of(found, "generate")
    assert request.attributes is not None and request.parent is not None
    assert request.attributes["gen_ai.usage.output_tokens"] == 12
    assert request.attributes["gen_ai.usage.input_tokens"] == len(PROMPT)
    assert request.attributes["gen_ai.response.finish_reasons"] == ("length",)
    assert f"{request.parent.span_id:016x}" == PARENT
    assert {f"{span.context.trace_id:032x}" for span in found} == {TRACE}
    rounds = of(found, "round")
    assert len(rounds) == request.attributes["foredraft.rounds"]
    assert {span.parent.span_id for span in rounds if span.parent} == {request.context.span_id}
    committed = [
        span.attributes["foredraft.committed_tokens"] for span in rounds if span.attributes
    ]
    assert sum(committed) == 12
    inside = {span.context.span_id for span in rounds}
    services = of(found, "verify") + of(found, "draft")
    assert len(of(found, "verify")) == len(rounds) and of(found, "draft")
    assert all(span.parent and span.parent.span_id in inside for span in services)
    for span in rounds:
        assert request.start_time and span.start_time and span.end_time
        assert request.start_time <= span.start_time <= span.end_time


async def test_a_grpc_call_is_in_the_trace_of_its_client() -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    server = RpcServer(Calls(traced(provider), Admission((), lambda: 0.0), 8), RpcConfig(port=0))
    await server.start()
    request = pb.GenerateRequest(input=pb.Input(token_ids=pb.TokenIds(ids=PROMPT)), max_tokens=12)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        stub = generation_pb2_grpc.GenerationServiceStub(channel)
        await stub.Generate(request, metadata=(("traceparent", f"00-{TRACE}-{PARENT}-01"),))
        await stub.Generate(request)
    await server.stop()
    mine, another = of(list(exporter.get_finished_spans()), "generate")
    assert mine.parent is not None and f"{mine.parent.span_id:016x}" == PARENT
    assert another.parent is None


async def test_no_words_are_in_a_trace() -> None:
    found = await spans(BODY | {"prompt": "hushhush = 1"})
    assert "hush" not in "".join(span.to_json() for span in found)


async def test_what_a_client_does_not_sample_is_not_recorded() -> None:
    provider = provider_of(TracingConfig(endpoint="http://127.0.0.1:1/x"))
    assert provider is not None
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    async with served(provider) as url, aiohttp.ClientSession() as http:
        headers = {"traceparent": f"00-{TRACE}-{PARENT}-00"}
        async with http.post(url, json=BODY, headers=headers) as answer:
            assert answer.status == 200
    assert exporter.get_finished_spans() == ()


async def test_a_collector_receives_them() -> None:
    received: list[str] = []

    async def collect(request: web.Request) -> web.Response:
        message = ExportTraceServiceRequest.FromString(await request.read())
        for resource in message.resource_spans:
            for scope in resource.scope_spans:
                received.extend(span.name for span in scope.spans)
        return web.Response()

    app = web.Application()
    app.router.add_post("/v1/traces", collect)
    runner = web.AppRunner(app)
    await runner.setup()
    port = free_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    provider = provider_of(TracingConfig(endpoint=f"http://127.0.0.1:{port}/v1/traces"))
    assert provider is not None and provider_of(TracingConfig()) is None
    try:
        async with (
            served(provider) as url,
            aiohttp.ClientSession() as http,
            http.post(url, json=BODY) as answer,
        ):
            assert answer.status == 200
        await asyncio.to_thread(provider.shutdown)
    finally:
        await runner.cleanup()
    assert received.count("generate") == 1 and "verify" in received
