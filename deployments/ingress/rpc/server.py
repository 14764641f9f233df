"""The gRPC server of the ingress: it listens, reports its health, and stops in order."""

from __future__ import annotations

import asyncio
import logging

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from deployments.ingress.rpc.calls import Calls
from deployments.ingress.rpc.config import RpcConfig, TlsConfig
from deployments.ingress.rpc.servicer import SERVICE, GenerationServicer
from foredraft.errors import ConfigError
from foredraft.rpc import options
from foredraft.v1 import generation_pb2_grpc

_PARAM = "ingress.grpc"
log = logging.getLogger(__name__)


class RpcServer:
    """Serves GenerationService, and VllmEngine where it is asked for; health and reflection.

    Raise ConfigError where VllmEngine's messages are not installed.
    """

    def __init__(self, calls: Calls, config: RpcConfig) -> None:
        self._config = config
        # Its port is shared: an updated ingress listens before the one that it replaces has ended,
        # and several may listen at once.
        self._server = grpc.aio.server(options=options.DOOR)
        servicer = GenerationServicer(calls)
        generation_pb2_grpc.add_GenerationServiceServicer_to_server(servicer, self._server)
        self._names = [SERVICE]
        if config.vllm_engine:
            self._names.append(_add_vllm_engine(calls, self._server))
        self._health = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection(
            (*self._names, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server
        )
        self.port = 0

    async def start(self) -> None:
        """Listen and serve; raise ConfigError naming ingress.grpc where that cannot be done."""
        address = f"{self._config.host}:{self._config.port}"
        try:
            if self._config.tls is None:
                self.port = self._server.add_insecure_port(address)
            else:
                self.port = self._server.add_secure_port(address, _credentials(self._config.tls))
        except RuntimeError:
            raise ConfigError(f"{_PARAM}: cannot listen on {address}", param=_PARAM) from None
        await self._server.start()
        for name in ("", *self._names):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        log.info("gRPC listens on %s:%d", self._config.host, self.port)

    async def leave(self) -> None:
        """Say NOT_SERVING from now on, so that nobody sends more."""
        await self._health.enter_graceful_shutdown()

    async def hand_over(self, seconds: float) -> None:
        """Take no new connections and calls; those under way have so many seconds to end."""
        self._handing_over = asyncio.create_task(self._server.stop(seconds))

    async def stop(self) -> None:
        """End what is still under way."""
        await self._server.stop(grace=None)


def _add_vllm_engine(calls: Calls, server: grpc.aio.Server) -> str:
    """Add VllmEngine to a server; return its name."""
    try:
        from deployments.ingress.rpc.vllm_engine import servicer
    except ImportError:
        param = f"{_PARAM}.vllm_engine"
        raise ConfigError(f"{param} needs foredraft[vllm-engine]", param=param) from None
    servicer.add(calls, server)
    return servicer.SERVICE


def _credentials(tls: TlsConfig) -> grpc.ServerCredentials:
    try:
        key, chain = tls.keyfile.read_bytes(), tls.certfile.read_bytes()
        clients = None if tls.client_ca is None else tls.client_ca.read_bytes()
    except OSError as error:
        reason = f"{_PARAM}.tls: {error.filename}: {error.strerror}"
        raise ConfigError(reason, param=f"{_PARAM}.tls") from None
    return grpc.ssl_server_credentials([(key, chain)], clients, clients is not None)
