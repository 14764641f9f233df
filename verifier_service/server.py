"""The verifier's gRPC server: one bidirectional stream per session, whose end frees the session."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from foredraft import limits
from foredraft.codec import lease as lease_codec
from foredraft.codec import records as codec
from foredraft.errors import ForedraftError, InvalidRequest, Unavailable
from foredraft.features import wire as features
from foredraft.lease import LeaseEnded, LedRound
from foredraft.types import ModelInfo, Verdict, VerifyOpen
from foredraft.v1 import common_pb2, verifier_pb2, verifier_pb2_grpc
from verifier_service.config import VerifierConfig
from verifier_service.drafters import Connect, Drafters
from verifier_service.lease import Lease
from verifier_service.parallel.ranks import NoRanks, ProcessRanks, Ranks, StartRanks
from verifier_service.runner import Runner

SERVICE = verifier_pb2.DESCRIPTOR.services_by_name["VerifierService"].full_name
_OPTIONS = [
    ("grpc.max_receive_message_length", limits.MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", limits.MAX_MESSAGE_BYTES),
    ("grpc.so_reuseport", 0),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
]

log = logging.getLogger(__name__)


class _Stream:
    """One session's stream; no two messages are written at the same time."""

    def __init__(self, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        self._context = context
        self._lock = asyncio.Lock()

    async def send(self, **message: Any) -> None:
        async with self._lock:
            await self._context.write(verifier_pb2.VerifyResponse(**message))

    async def send_verdict(self, verdict: Verdict) -> None:
        verdict = await self._chunked(verdict)
        await self.send(verdict=codec.verdict_to_pb(verdict))

    async def report(self, message: LedRound | LeaseEnded) -> None:
        if isinstance(message, LeaseEnded):
            await self.send(lease_ended=lease_codec.lease_ended_to_pb(message))
            return
        message = dataclasses.replace(message, verdict=await self._chunked(message.verdict))
        await self.send(led_round=lease_codec.led_round_to_pb(message))

    async def _chunked(self, verdict: Verdict) -> Verdict:
        """Send a verdict's features but for their last part; return it with that."""
        chunks, last = features.split(verdict.features)
        for chunk in chunks:
            await self.send(features=common_pb2.FeatureChunk(data=chunk))
        return dataclasses.replace(verdict, features=last) if chunks else verdict


class VerifierServicer(verifier_pb2_grpc.VerifierServiceServicer):
    """Speaks the contract of verifier.proto on top of a runner."""

    def __init__(self, runner: Runner, drafters: Drafters, *, idle_ttl_s: float) -> None:
        self._runner = runner
        self._drafters = drafters
        self._idle_ttl_s = idle_ttl_s
        self._streams: set[_Stream] = set()
        self._draining = False
        self.empty = asyncio.Event()
        self.empty.set()

    async def Verify(self, requests: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        """Serve one session; errors end the stream with their status."""
        try:
            await self._serve(context)
        except ForedraftError as error:
            trailing = (("foredraft-param", error.param),) if error.param else ()
            await context.abort(grpc.StatusCode[error.grpc_status], str(error), trailing)

    async def drain(self, grace_s: float) -> None:
        """Take no new sessions and ask the open ones to move within the grace period."""
        self._draining = True
        notice = common_pb2.Draining(grace_ms=int(1000 * grace_s))
        for stream in tuple(self._streams):
            try:
                await stream.send(draining=notice)
            except (grpc.aio.BaseError, asyncio.InvalidStateError):
                log.debug("a stream ended while it was asked to move")

    async def _serve(self, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        first = await self._read(context)
        if first is grpc.aio.EOF:
            return
        if first.WhichOneof("message") != "open":
            raise InvalidRequest("the first message must be open", param="open")
        if self._draining:
            raise Unavailable("the verifier is draining")
        request, stream = codec.verify_open_from_pb(first.open), _Stream(context)
        async with self._session(request, stream) as handle:
            model = codec.model_to_pb(self._runner.info)
            verify = partial(self._runner.verify, handle)
            lease = Lease(request, self._drafters, verify, stream.report)
            await stream.send(opened=verifier_pb2.VerifyOpened(model=model))
            try:
                async with asyncio.TaskGroup() as tasks:
                    leading = tasks.create_task(lease.run())
                    await self._answer(context, handle, stream, lease)
                    leading.cancel()
            except BaseExceptionGroup as group:
                raise group.exceptions[0] from None
            finally:
                await lease.close()

    async def _answer(
        self,
        context: grpc.aio.ServicerContext[Any, Any],
        handle: int,
        stream: _Stream,
        lease: Lease,
    ) -> None:
        """Do what a session asks for until it ends."""
        while (message := await self._read(context)) is not grpc.aio.EOF:
            kind = message.WhichOneof("message")
            if kind == "draft_source":
                lease.use_drafter(lease_codec.source_from_pb(message.draft_source))
            elif kind == "grant":
                lease.grant(lease_codec.grant_from_pb(message.grant))
            elif kind != "round":
                raise InvalidRequest("only rounds may follow open", param="round")
            elif lease.active:
                raise InvalidRequest("the verifier holds a lease", param="round")
            else:
                asked = codec.round_from_pb(message.round)
                verdict = await self._runner.verify(handle, asked)
                lease.decided(asked, verdict)
                await stream.send_verdict(verdict)

    @asynccontextmanager
    async def _session(self, request: VerifyOpen, stream: _Stream) -> AsyncIterator[int]:
        handle = await self._runner.open(request)
        self._streams.add(stream)
        self.empty.clear()
        try:
            yield handle
        finally:
            self._runner.close(handle)
            self._streams.discard(stream)
            if not self._streams:
                self.empty.set()

    async def _read(self, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        """Return the next message or EOF; a peer that stays silent too long loses its session."""
        try:
            async with asyncio.timeout(self._idle_ttl_s):
                return await context.read()
        except TimeoutError:
            raise Unavailable(f"no message for {self._idle_ttl_s:g} s") from None


class VerifierServer:
    """A running server; `serve` makes it."""

    def __init__(
        self,
        config: VerifierConfig,
        runner: Runner,
        drafters: Drafters,
        ranks: Ranks,
    ) -> None:
        servicer = VerifierServicer(runner, drafters, idle_ttl_s=config.idle_ttl_s)
        self._config = config
        self._drafters = drafters
        self._runner = runner
        self._ranks = ranks
        self._servicer = servicer
        self._health = health.aio.HealthServicer()
        self._server = grpc.aio.server(options=_OPTIONS)
        verifier_pb2_grpc.add_VerifierServiceServicer_to_server(servicer, self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection(
            (SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server
        )
        self.port = self._server.add_insecure_port(f"{config.host}:{config.port}")

    async def start(self) -> None:
        """Listen; health says SERVING."""
        await self._server.start()
        for service in ("", SERVICE):
            await self._health.set(service, health_pb2.HealthCheckResponse.SERVING)

    def check_health(self) -> None:
        """Raise Unavailable once the worker or a rank has ended: nothing can be served any more."""
        self._ranks.check()
        if not self._runner.alive:
            raise Unavailable("the verifier's worker ended")

    @property
    def info(self) -> ModelInfo:
        """The target model, with its measured numerics."""
        return self._runner.info

    def stats(self) -> dict[str, float]:
        """Return what autoscaling and /health look at, by name: see runner.Stats."""
        return dataclasses.asdict(self._runner.stats())

    async def drain(self, grace_s: float | None = None) -> None:
        """Refuse new sessions, ask open ones to move, wait for them up to grace_s, then stop."""
        grace_s = self._config.grace_s if grace_s is None else grace_s
        await self._health.enter_graceful_shutdown()
        await self._servicer.drain(grace_s)
        try:
            async with asyncio.timeout(grace_s):
                await self._servicer.empty.wait()
        except TimeoutError:
            log.warning("sessions were still open after the grace period")
        await self.stop()

    async def stop(self) -> None:
        """End all streams and the worker; a second call does nothing."""
        await self._server.stop(grace=None)
        await self._drafters.close()
        self._ranks.stop()
        await self._runner.stop()

    async def wait(self) -> None:
        """Return when the server has stopped."""
        await self._server.wait_for_termination()


async def serve(
    config: VerifierConfig,
    start_ranks: StartRanks = ProcessRanks,
    connect: Connect | None = None,
) -> VerifierServer:
    """Load the model off the event loop, then start a server on this loop and return it.

    start_ranks is for a tensor-parallel model; connect makes a client of a drafter's address, None
    if this verifier is not to ask drafters itself. Raise WeightsError or ConfigError.
    """
    # Imported here so that a server over another engine, as in tests, loads no torch model code.
    from verifier_service.load import load_engine

    if config.tensor_parallel == 1:
        return await serve_engine(config, Runner(partial(load_engine, config)), connect=connect)
    from verifier_service.parallel.tensor_parallel import Meeting

    meeting = Meeting(config.host, config.tensor_parallel)
    ranks = start_ranks(config, meeting.address)
    try:
        runner = Runner(partial(load_engine, config, meeting))
        return await serve_engine(config, runner, ranks, connect)
    except BaseException:
        ranks.stop()
        raise


async def serve_engine(
    config: VerifierConfig,
    runner: Runner,
    ranks: Ranks | None = None,
    connect: Connect | None = None,
) -> VerifierServer:
    """Start a server over a runner and its ranks; it owns them from now on."""
    await runner.ready()
    server = VerifierServer(config, runner, Drafters(connect), ranks or NoRanks())
    await server.start()
    return server
