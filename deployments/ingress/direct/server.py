"""The HTTP port of the ingress's own: no process between the client and the orchestrator."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

from deployments.ingress.direct.bounded import Bounded
from deployments.ingress.direct.config import DirectConfig
from deployments.ingress.direct.leaving import EndedByLeaving
from deployments.ingress.direct.request_id import RequestId
from foredraft.errors import ConfigError

_PARAM = "ingress.direct"
_BACKLOG = 2048
log = logging.getLogger(__name__)


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the replica."""
        yield


class DirectServer:
    """Serves an app by HTTP/1.1, so many requests at once; raise ConfigError for its files."""

    def __init__(self, app: ASGIApp, config: DirectConfig, max_requests: int) -> None:
        self._config = config
        inside = RequestId(Bounded(EndedByLeaving(app), max_requests))
        settings = uvicorn.Config(inside, lifespan="off", log_config=None, access_log=False)
        if (tls := config.tls) is not None:
            settings.ssl_keyfile, settings.ssl_certfile = str(tls.keyfile), str(tls.certfile)
            if tls.client_ca is not None:
                settings.ssl_ca_certs = str(tls.client_ca)
                settings.ssl_cert_reqs = ssl.CERT_REQUIRED
        try:
            settings.load()
        except OSError as error:
            raise ConfigError(f"{_PARAM}.tls: {error}", param=f"{_PARAM}.tls") from None
        self._server = _Server(settings)
        self.port = 0

    async def start(self) -> None:
        """Listen and serve; raise ConfigError naming ingress.direct where that cannot be done."""
        host, port = self._config.host, self._config.port
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            # Shared: an updated ingress listens before the one that it replaces has ended.
            listener = socket.create_server(
                (host, port), family=family, backlog=_BACKLOG, reuse_port=bool(port)
            )
        except OSError as error:
            reason = f"{_PARAM}: cannot listen on {host}:{port}: {error.strerror}"
            raise ConfigError(reason, param=_PARAM) from None
        self.port = listener.getsockname()[1]
        self._serving = asyncio.create_task(self._server.serve(sockets=[listener]))
        log.info("HTTP listens on %s:%d", host, self.port)

    async def stop(self) -> None:
        """End what is still under way."""
        self._server.should_exit = self._server.force_exit = True
        await self._serving
