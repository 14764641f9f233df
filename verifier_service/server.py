"""The verifier's gRPC server: one bidirectional stream per session, whose end frees the session."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from foredraft.codec import common as common_codec
from foredraft.codec import lease as lease_codec
from foredraft.codec import verifier as codec
from foredraft.errors import InvalidRequest
from foredraft.lease import LeaseEnded, LedRound
from foredraft.messages import Verdict
from foredraft.rpc.server import ServiceServer
from foredraft.rpc.session import ServerStream, SessionServicer, session_tasks
from foredraft.rpc.transport import Role
from foredraft.tensors.carrier import IN_CHUNKS, Carrier
from foredraft.tensors.parts import Sender
from foredraft.types import Acceptance
from foredraft.v1 import verifier_pb2, verifier_pb2_grpc
from verifier_service.config import VerifierConfig
from verifier_service.drafters import Connect, Drafters, Permits, anybody
from verifier_service.lease import Lease
from verifier_service.parallel.ranks import NoRanks, ProcessRanks, Ranks, StartRanks
from verifier_service.runner import Runner

SERVICE = verifier_pb2.DESCRIPTOR.services_by_name["VerifierService"].full_name

_Stream = ServerStream[verifier_pb2.VerifyRequest, verifier_pb2.VerifyResponse]


class VerifierServicer(SessionServicer, verifier_pb2_grpc.VerifierServiceServicer):
    """Serves sessions from a runner; rounds go one at a time."""

    def __init__(
        self, runner: Runner, drafters: Drafters, config: VerifierConfig, carrier: Carrier
    ) -> None:
        super().__init__(Role.VERIFIER, runner, config)
        self._runner, self._drafters, self._carrier = runner, drafters, carrier

    async def Verify(self, requests: Any, context: Any) -> None:
        """Serve one session."""
        await self.serve(context, self._session, verifier_pb2.VerifyResponse)

    async def VerifierInfo(
        self, request: verifier_pb2.VerifierInfoRequest, context: Any
    ) -> verifier_pb2.VerifierInfoResponse:
        """Describe the verifier."""
        async with self.answering(context):
            return verifier_pb2.VerifierInfoResponse(
                model=common_codec.model_to_pb(self._runner.info),
                oldest_protocol=common_codec.PROTOCOL,
                newest_protocol=common_codec.PROTOCOL,
                acceptances=list(Acceptance),
                leads_rounds=self._drafters.supported,
            )

    async def _session(self, opening: verifier_pb2.VerifyOpen, stream: _Stream) -> None:
        """Open a session and decide its rounds, and those that this verifier leads."""
        request = codec.verify_open_from_pb(opening)
        model = common_codec.model_to_pb(self._runner.info)
        handle = await self._runner.open(request)
        sender = Sender(self._carrier, request.tensor_store)
        with self.admitted(stream, partial(self._runner.close, handle)):
            verify = partial(self._runner.verify, handle)
            lease = Lease(request, self._drafters, verify, partial(_report, stream, sender))
            opened = verifier_pb2.VerifyOpened(model=model)
            await stream.write(verifier_pb2.VerifyResponse(opened=opened))
            try:
                async with session_tasks() as tasks:
                    leading = tasks.create_task(lease.run())
                    await self._answer(stream, handle, lease, sender)
                    leading.cancel()
            finally:
                sender.close()
                await lease.close()

    async def _answer(self, stream: _Stream, handle: int, lease: Lease, sender: Sender) -> None:
        """Do what a session asks for until it ends."""
        while (message := await stream.read()) is not None:
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
                verdict = await _parted(stream, sender, verdict)
                answer = verifier_pb2.VerifyResponse(verdict=codec.verdict_to_pb(verdict))
                await stream.write(answer)


async def _parted(stream: _Stream, sender: Sender, verdict: Verdict) -> Verdict:
    """Send a verdict's features but for their last part; return it with that."""
    parts, last = await sender.parts(verdict.features)
    for part in parts:
        chunk = common_codec.part_to_pb(part)
        await stream.write(verifier_pb2.VerifyResponse(features=chunk))
    return replace(verdict, features=last) if parts else verdict


async def _report(stream: _Stream, sender: Sender, message: LedRound | LeaseEnded) -> None:
    """Send a led round, or the lease's end."""
    if isinstance(message, LeaseEnded):
        ended = lease_codec.lease_ended_to_pb(message)
        await stream.write(verifier_pb2.VerifyResponse(lease_ended=ended))
        return
    message = replace(message, verdict=await _parted(stream, sender, message.verdict))
    led = lease_codec.led_round_to_pb(message)
    await stream.write(verifier_pb2.VerifyResponse(led_round=led))


class VerifierServer(ServiceServer):
    """A verifier's server, which also owns its ranks and its drafters' clients."""

    def __init__(
        self,
        config: VerifierConfig,
        runner: Runner,
        drafters: Drafters,
        ranks: Ranks,
        carrier: Carrier,
        token: str,
    ) -> None:
        servicer = VerifierServicer(runner, drafters, config, carrier)
        register = verifier_pb2_grpc.add_VerifierServiceServicer_to_server
        super().__init__(servicer, register, SERVICE, token)
        self._drafters, self._ranks = drafters, ranks

    def check_health(self) -> None:
        """Raise Unavailable once the engine's thread or a rank has ended."""
        self._ranks.check()
        super().check_health()

    async def stop(self) -> None:
        """End all streams, the ranks and the engine; a second call does nothing."""
        await self._server.stop(grace=None)
        await self._drafters.close()
        self._ranks.stop()
        await super().stop()


async def serve(
    config: VerifierConfig,
    start_ranks: StartRanks = ProcessRanks,
    connect: Connect | None = None,
    carrier: Carrier = IN_CHUNKS,
    permits: Permits = anybody,
    token: str = "",
) -> VerifierServer:
    """Load the model and serve it; return when it is ready.

    start_ranks is for a tensor-parallel model; connect makes a client of a drafter's address, None
    if this verifier is not to ask drafters itself, and permits is whether it may; carrier takes
    features that are large; token is what callers must show, by default the configuration's. Raise
    WeightsError or ConfigError.
    """
    # Imported here so that a server over another engine, as in tests, loads no torch model code.
    from verifier_service.load import load_engine, shape_of

    drafters = Drafters(connect, permits)
    if config.tensor_parallel == 1:
        runner = Runner(partial(load_engine, config))
        return await serve_engine(config, runner, NoRanks(), drafters, carrier, token)
    from verifier_service.parallel.tensor_parallel import Meeting

    # Before processes are started, each of which loads torch.
    shape_of(config)
    meeting = Meeting(config.host, config.tensor_parallel)
    ranks = start_ranks(config, meeting.address)
    runner = Runner(partial(load_engine, config, meeting))
    return await serve_engine(config, runner, ranks, drafters, carrier, token)


async def serve_engine(
    config: VerifierConfig,
    runner: Runner,
    ranks: Ranks | None = None,
    drafters: Drafters | None = None,
    carrier: Carrier = IN_CHUNKS,
    token: str = "",
) -> VerifierServer:
    """Serve a runner's engine, which need not be loaded yet; the server owns it and its ranks."""
    asked = drafters or Drafters()
    server = VerifierServer(config, runner, asked, ranks or NoRanks(), carrier, token)
    await server.start()
    return server
