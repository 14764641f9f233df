"""One life for every service: start, serve, drain, stop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from foredraft.errors import ConfigError, ForedraftError
from foredraft.rpc import options
from foredraft.rpc.session import SessionServicer
from foredraft.rpc.token import asking, token_in
from foredraft.types import ModelInfo

_WATCH_S = 0.5

log = logging.getLogger(__name__)


class ServiceServer:
    """A gRPC server over one engine thread, with health, and reflection where it is configured.

    register is the generated add_..._to_server of the servicer; name is the service's full name;
    token is what callers must show, by default the configuration's. Raise ConfigError for its file.
    """

    def __init__(
        self,
        servicer: SessionServicer,
        register: Callable[..., None],
        name: str,
        token: str = "",
    ) -> None:
        self._servicer, self._engine = servicer, servicer.engine
        self._config = servicer.config
        self._names = ("", name)
        self._server = grpc.aio.server(
            interceptors=asking(token or token_in(self._config.token_file)),
            options=options.SERVER,
        )
        register(servicer, self._server)
        self._health = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        if self._config.reflection:
            reflection.enable_server_reflection(
                (name, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server
            )
        self.port = 0

    async def start(self) -> None:
        """Listen, load the engine, serve: health is NOT_SERVING until then.

        Raise ConfigError where the address cannot be used, and what loading raises.
        """
        try:
            self._listen(f"{self._config.host}:{self._config.port}")
            await self._set_health(health_pb2.HealthCheckResponse.NOT_SERVING)
            await self._server.start()
            await self._engine.start()
        except BaseException:
            await self.stop()
            raise
        await self._set_health(health_pb2.HealthCheckResponse.SERVING)
        log.info("the %s listens on %s:%d", self._servicer.service, self._config.host, self.port)

    @property
    def info(self) -> ModelInfo:
        """The model; raise Unavailable unless its engine runs."""
        return self._engine.info

    def check_health(self) -> None:
        """Raise Unavailable if nothing can be served any more."""
        _ = self._engine.engine

    def stats(self) -> dict[str, float]:
        """Return the engine thread's load and the number of open streams."""
        return {**self._engine.stats(), "streams": float(self._servicer.streams)}

    async def broken(self) -> ForedraftError:
        """Return what check_health raises, once it does; health is NOT_SERVING from then on."""
        while True:
            await asyncio.sleep(_WATCH_S)
            try:
                self.check_health()
            except ForedraftError as error:
                await self._set_health(health_pb2.HealthCheckResponse.NOT_SERVING)
                return error

    async def drain(self, grace_s: float | None = None) -> None:
        """Take no new sessions, ask open ones to move; return once they did, or after grace_s.

        By default grace_s is the configuration's.
        """
        await self._health.enter_graceful_shutdown()
        if not await self._servicer.drain(self._config.grace_s if grace_s is None else grace_s):
            log.warning("sessions were still open after the grace period")

    async def stop(self) -> None:
        """End all streams and the engine; a second call does nothing."""
        await self._server.stop(grace=None)
        await self._engine.stop()

    def _listen(self, address: str) -> None:
        try:
            self.port = self._servicer.transport.listen(self._server, address)
        except RuntimeError:
            raise ConfigError(f"cannot listen on {address}", param="port") from None

    async def _set_health(self, status: int) -> None:
        for name in self._names:
            await self._health.set(name, status)
