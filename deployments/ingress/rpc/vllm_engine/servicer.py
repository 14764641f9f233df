"""`vllm.grpc.engine.VllmEngine`, which routers for vLLM speak: token ids in, token ids out.

Embed, KV events, the profiler and the flush of the cache have no equal here: UNIMPLEMENTED.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import UTC, datetime
from functools import partial
from typing import Any

import grpc
from smg_grpc_proto import vllm_engine_pb2 as pb
from smg_grpc_proto import vllm_engine_pb2_grpc
from smg_grpc_proto.generated import common_pb2

from deployments.ingress.rpc.calls import Calls, key_of
from deployments.ingress.rpc.vllm_engine.requests import request_of
from deployments.ingress.rpc.vllm_engine.responses import ABORT, EngineResponses
from deployments.ingress.rpc.vllm_engine.running import Running
from deployments.ingress.rpc.vllm_engine.tokenizer import archived
from foredraft import __version__
from foredraft.errors import Unavailable
from foredraft.threads import in_thread

SERVICE: str = pb.DESCRIPTOR.services_by_name["VllmEngine"].full_name

_CHUNK_BYTES = 64 << 10


class VllmEngineServicer(vllm_engine_pb2_grpc.VllmEngineServicer):  # type: ignore[misc]
    """Answers calls of routers."""

    def __init__(self, calls: Calls) -> None:
        self._calls, self._by = calls, calls.by
        self._running = Running()
        self._started = time.monotonic()
        self._last = time.time()

    async def Generate(
        self, request: pb.GenerateRequest, context: Any
    ) -> AsyncIterator[pb.GenerateResponse]:
        """Yield chunks of each answer if they are asked for, and each answer once it has ended."""
        self._last = time.time()
        async with self._calls.admitted(context):
            with self._running.entered(key_of(context), request.request_id) as running:
                asked = request_of(request)
                prompt, stream = await self._calls.decoded(asked, context)
                ends = frozenset(asked.stop_token_ids or ())
                ends |= frozenset(self._by.generations.target.eos_token_ids)
                answers = [
                    EngineResponses(index, len(prompt), ends) for index in range(asked.samples)
                ]
                async with aclosing(stream):
                    async for index, delta in running.items(stream):
                        answers[index].add(delta)
                        if request.stream and delta.tokens:
                            yield answers[index].chunk(delta)
                        if delta.finish_reason is not None:
                            yield answers[index].complete()
                for answer in answers:
                    if not answer.ended:
                        yield answer.complete(ABORT)

    async def Abort(self, request: pb.AbortRequest, context: Any) -> pb.AbortResponse:
        """End requests of this client."""
        async with self._calls.admitted(context):
            for request_id in request.request_ids:
                self._running.abort(key_of(context), request_id)
            return pb.AbortResponse()

    async def HealthCheck(
        self, request: pb.HealthCheckRequest, context: Any
    ) -> pb.HealthCheckResponse:
        """Say whether requests are taken; no key is needed."""
        try:
            self._by.generations.stopping.check()
        except Unavailable as error:
            return pb.HealthCheckResponse(healthy=False, message=str(error))
        return pb.HealthCheckResponse(healthy=True, message="ok")

    async def GetModelInfo(
        self, request: pb.GetModelInfoRequest, context: Any
    ) -> pb.GetModelInfoResponse:
        """Describe the target."""
        async with self._calls.admitted(context):
            generations = self._by.generations
            target = generations.target
            return pb.GetModelInfoResponse(
                model_path=generations.name,
                served_model_name=generations.name,
                is_generation=True,
                max_context_length=target.max_len,
                max_req_input_len=target.max_len - 1,
                vocab_size=target.vocab_size,
                eos_token_ids=target.eos_token_ids,
            )

    async def GetServerInfo(
        self, request: pb.GetServerInfoRequest, context: Any
    ) -> pb.GetServerInfoResponse:
        """Describe the server."""
        async with self._calls.admitted(context):
            return pb.GetServerInfoResponse(
                active_requests=self._generating,
                last_receive_timestamp=self._last,
                uptime_seconds=time.monotonic() - self._started,
                server_type="foredraft-grpc",
                data_parallel_size=1,
                model_dtype=self._by.generations.target.numerics,
                constrained_decoding_start="first_token",
            )

    async def GetLoads(self, request: pb.GetLoadsRequest, context: Any) -> pb.GetLoadsResponse:
        """Say how many requests are under way by this server."""
        async with self._calls.admitted(context):
            running = self._generating
            load = pb.SchedulerLoad(num_running_reqs=running, num_total_reqs=running)
            return pb.GetLoadsResponse(
                timestamp=datetime.now(UTC).isoformat(),
                version=__version__,
                dp_rank_count=1,
                loads=[load],
            )

    async def GetTokenizer(
        self, request: common_pb2.GetTokenizerRequest, context: Any
    ) -> AsyncIterator[common_pb2.GetTokenizerChunk]:
        """Yield the tokenizer's files as one ZIP archive, its SHA-256 with the last part."""
        async with self._calls.admitted(context):
            data, digest = await in_thread(partial(archived, self._by.tokenizer_file.parent))
            for start in range(0, len(data), _CHUNK_BYTES):
                last = start + _CHUNK_BYTES >= len(data)
                yield common_pb2.GetTokenizerChunk(
                    data=data[start : start + _CHUNK_BYTES], sha256=digest if last else ""
                )

    @property
    def _generating(self) -> int:
        return len(self._running)


def add(calls: Calls, server: grpc.aio.Server) -> None:
    """Add the service to a server."""
    vllm_engine_pb2_grpc.add_VllmEngineServicer_to_server(VllmEngineServicer(calls), server)
