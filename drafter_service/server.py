"""The drafter's gRPC server: one bidirectional stream is one session."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import replace

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from drafter_service.batcher import Batcher
from drafter_service.config import DrafterConfig
from drafter_service.load import load_engine
from foredraft import limits
from foredraft.codec import records as codec
from foredraft.errors import DeadlineExceeded, ForedraftError, InvalidRequest, Unavailable
from foredraft.features.wire import Chunks, size
from foredraft.types import DraftBlock, ModelInfo
from foredraft.v1 import common_pb2, drafter_pb2, drafter_pb2_grpc

log = logging.getLogger(__name__)

SERVICE = drafter_pb2.DESCRIPTOR.services_by_name["DrafterService"].full_name
SERVER_OPTIONS = (
    ("grpc.max_receive_message_length", limits.MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", limits.MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.so_reuseport", 0),
)

_Answer = asyncio.Future[DraftBlock] | drafter_pb2.DraftResponse | None


class DrafterServicer(drafter_pb2_grpc.DrafterServiceServicer):
    """Serves sessions from a batcher. A stream's end frees its session."""

    def __init__(self, batcher: Batcher, config: DrafterConfig) -> None:
        self._batcher, self._config = batcher, config
        self._streams: set[asyncio.Queue[_Answer]] = set()
        self._draining: drafter_pb2.DraftResponse | None = None
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def streams(self) -> int:
        """The number of sessions that are open."""
        return len(self._streams)

    def drain(self, grace_s: float) -> None:
        """Refuse new sessions and ask those that run to move."""
        self._draining = drafter_pb2.DraftResponse(
            draining=common_pb2.Draining(grace_ms=int(1e3 * grace_s))
        )
        for answers in self._streams:
            answers.put_nowait(self._draining)

    async def drained(self, within_s: float) -> bool:
        """Return whether every session has ended, as soon as that is so or the time is up."""
        try:
            async with asyncio.timeout(within_s):
                await self._empty.wait()
        except TimeoutError:
            return False
        return True

    async def Draft(
        self,
        request_iterator: AsyncIterator[drafter_pb2.DraftRequest],
        context: grpc.aio.ServicerContext,
    ) -> None:
        """Serve one session: `open` first, then proposals answered in order."""
        try:
            await self._session(request_iterator, context)
        except ForedraftError as error:
            await _abort(context, error)

    async def _session(
        self, requests: AsyncIterator[drafter_pb2.DraftRequest], context: grpc.aio.ServicerContext
    ) -> None:
        if self._draining is not None:
            raise Unavailable("the drafter is draining")
        first = await _next(requests, self._config.open_timeout_s)
        if first is None or first.WhichOneof("message") != "open":
            raise InvalidRequest("the first message must be open", param="open")
        request = codec.draft_open_from_pb(first.open)
        handle, opened = await self._batcher.open(request)
        features = Chunks(size(request.max_len, opened.model.features_width))
        answers: asyncio.Queue[_Answer] = asyncio.Queue()
        room = asyncio.Semaphore(self._config.max_pending)
        reader = asyncio.create_task(self._read(requests, handle, answers, room, features))
        self._streams.add(answers)
        self._empty.clear()
        try:
            reply = drafter_pb2.DraftResponse(opened=codec.draft_opened_to_pb(opened))
            await context.write(reply)
            while (answer := await answers.get()) is not None:
                if isinstance(answer, drafter_pb2.DraftResponse):
                    await context.write(answer)
                else:
                    block = codec.draft_block_to_pb(await answer)
                    room.release()
                    await context.write(drafter_pb2.DraftResponse(block=block))
            await reader
        finally:
            self._streams.discard(answers)
            if not self._streams:
                self._empty.set()
            reader.cancel()
            self._batcher.close(handle)

    async def _read(
        self,
        requests: AsyncIterator[drafter_pb2.DraftRequest],
        handle: int,
        answers: asyncio.Queue[_Answer],
        room: asyncio.Semaphore,
        features: Chunks,
    ) -> None:
        """Queue proposals as they come; None ends them. Raise what is wrong with a message."""
        try:
            while (message := await _next(requests, self._config.idle_ttl_s)) is not None:
                if message.WhichOneof("message") == "features":
                    features.add(message.features.data)
                    continue
                if message.WhichOneof("message") != "propose":
                    raise InvalidRequest("only propose may follow open", param="message")
                request = codec.propose_from_pb(message.propose)
                request = replace(request, features=features.end(request.features))
                await room.acquire()
                answers.put_nowait(self._batcher.propose(handle, request))
        finally:
            answers.put_nowait(None)


async def _next(
    requests: AsyncIterator[drafter_pb2.DraftRequest], timeout_s: float
) -> drafter_pb2.DraftRequest | None:
    """Return the next message, None at the end; raise DeadlineExceeded when none comes."""
    try:
        async with asyncio.timeout(timeout_s):
            return await anext(requests, None)
    except TimeoutError:
        raise DeadlineExceeded(f"nothing was asked for {timeout_s:g} s") from None


async def _abort(context: grpc.aio.ServicerContext, error: ForedraftError) -> None:
    """End the RPC with the error's status; trailing metadata name the field."""
    trailing = (("foredraft-param", error.param),) if error.param else ()
    status = grpc.StatusCode[error.grpc_status]
    await context.abort(status, str(error), trailing_metadata=trailing)


class DrafterServer:
    """A running server."""

    def __init__(
        self,
        server: grpc.aio.Server,
        servicer: DrafterServicer,
        status: health.aio.HealthServicer,
        batcher: Batcher,
        port: int,
    ) -> None:
        self._server, self._servicer, self._status = server, servicer, status
        self._batcher = batcher
        self.port = port

    @property
    def info(self) -> ModelInfo:
        """The model; raise Unavailable if the engine's thread has died."""
        return self._batcher.info

    def check_health(self) -> None:
        """Raise Unavailable if the engine's thread has died."""
        _ = self._batcher.info

    def stats(self) -> dict[str, float]:
        """Return the batcher's gauges and the number of open streams."""
        return {**self._batcher.stats(), "streams": float(self._servicer.streams)}

    async def drain(self, grace_s: float) -> None:
        """Take no new sessions, ask running ones to move; return within grace_s."""
        await self._status.enter_graceful_shutdown()
        self._servicer.drain(grace_s)
        await self._servicer.drained(grace_s)

    async def stop(self, grace_s: float = 0.0) -> None:
        """End the streams that are left after grace_s, free everything."""
        await self._server.stop(grace_s)
        await self._batcher.stop()

    async def wait(self) -> None:
        """Return when the server has ended."""
        await self._server.wait_for_termination()


async def serve(config: DrafterConfig) -> DrafterServer:
    """Load the model and serve it; return when it is ready.

    Health says NOT_SERVING until then. Raise WeightsError if the model cannot be used. The event
    loop is not blocked while the model loads.
    """
    return await serve_engine(Batcher(lambda: load_engine(config), config.max_queue), config)


async def serve_engine(batcher: Batcher, config: DrafterConfig) -> DrafterServer:
    """Serve a batcher's engine, which need not be loaded yet; config gives address and limits."""
    server = grpc.aio.server(options=SERVER_OPTIONS)
    servicer = DrafterServicer(batcher, config)
    drafter_pb2_grpc.add_DrafterServiceServicer_to_server(servicer, server)
    status = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(status, server)
    for name in ("", SERVICE):
        await status.set(name, health_pb2.HealthCheckResponse.NOT_SERVING)
    reflection.enable_server_reflection(
        (SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), server
    )
    port = server.add_insecure_port(f"{config.host}:{config.port}")
    await server.start()
    try:
        await batcher.start()
    except BaseException:
        await server.stop(None)
        raise
    for name in ("", SERVICE):
        await status.set(name, health_pb2.HealthCheckResponse.SERVING)
    log.info("drafter listens on %s:%d", config.host, port)
    return DrafterServer(server, servicer, status, batcher, port)
