"""The denoiser's gRPC server: one bidirectional stream per session, whose end frees the session."""

from __future__ import annotations

from functools import partial
from typing import Any

from denoiser_service.config import DenoiserConfig
from denoiser_service.runner import Runner
from foredraft.codec import common as common_codec
from foredraft.codec import denoiser as codec
from foredraft.errors import InvalidRequest
from foredraft.rpc.server import ServiceServer
from foredraft.rpc.session import ServerStream, SessionServicer
from foredraft.rpc.transport import Role
from foredraft.v1 import denoiser_pb2, denoiser_pb2_grpc

SERVICE = denoiser_pb2.DESCRIPTOR.services_by_name["DenoiserService"].full_name

_Stream = ServerStream[denoiser_pb2.DenoiseRequest, denoiser_pb2.DenoiseResponse]


class DenoiserServicer(SessionServicer, denoiser_pb2_grpc.DenoiserServiceServicer):
    """Serves sessions from a runner; advances go one at a time."""

    def __init__(self, runner: Runner, config: DenoiserConfig) -> None:
        super().__init__(Role.DENOISER, runner, config)
        self._runner = runner

    async def Denoise(self, requests: Any, context: Any) -> None:
        """Serve one session."""
        await self.serve(context, self._session, denoiser_pb2.DenoiseResponse)

    async def DenoiserInfo(
        self, request: denoiser_pb2.DenoiserInfoRequest, context: Any
    ) -> denoiser_pb2.DenoiserInfoResponse:
        """Describe the denoiser."""
        async with self.answering(context):
            return denoiser_pb2.DenoiserInfoResponse(
                model=common_codec.model_to_pb(self._runner.info),
                oldest_protocol=common_codec.PROTOCOL,
                newest_protocol=common_codec.PROTOCOL,
            )

    async def _session(self, opening: denoiser_pb2.DenoiseOpen, stream: _Stream) -> None:
        """Open a session and advance it until it ends."""
        request = codec.denoise_open_from_pb(opening)
        model = common_codec.model_to_pb(self._runner.info)
        handle = await self._runner.open(request)
        with self.admitted(stream, partial(self._runner.close, handle)):
            opened = denoiser_pb2.DenoiseOpened(model=model)
            await stream.write(denoiser_pb2.DenoiseResponse(opened=opened))
            while (message := await stream.read()) is not None:
                if message.WhichOneof("message") != "advance":
                    raise InvalidRequest("only advances may follow open", param="advance")
                asked = codec.advance_from_pb(message.advance)
                advanced = codec.advanced_to_pb(await self._runner.advance(handle, asked))
                await stream.write(denoiser_pb2.DenoiseResponse(advanced=advanced))


async def serve(config: DenoiserConfig, token: str = "") -> ServiceServer:
    """Load the model and serve it; return when it is ready.

    token is what callers must show, by default the configuration's. Raise WeightsError or
    ConfigError.
    """
    # Imported here so that a server over another engine, as in tests, loads no torch model code.
    from denoiser_service.load import load_engine

    return await serve_engine(config, Runner(partial(load_engine, config)), token)


async def serve_engine(config: DenoiserConfig, runner: Runner, token: str = "") -> ServiceServer:
    """Serve a runner's engine, which need not be loaded yet; the server owns it."""
    servicer = DenoiserServicer(runner, config)
    register = denoiser_pb2_grpc.add_DenoiserServiceServicer_to_server
    server = ServiceServer(servicer, register, SERVICE, token)
    await server.start()
    return server
