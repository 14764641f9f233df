"""The HTTP port of the ingress's own: no process between the client and the orchestrator."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from deployments.ingress.direct.bounded import Bounded
from deployments.ingress.direct.config import DirectConfig
from deployments.ingress.direct.last_answers import LastAnswers
from deployments.ingress.direct.leaving import EndedByLeaving
from deployments.ingress.direct.patience import Patience
from deployments.ingress.direct.places import Places
from deployments.ingress.direct.request_id import RequestId
from foredraft.errors import ConfigError

_PARAM = "ingress.direct"
_BACKLOG = 2048
_CLOSE_S = 1.0
log = logging.getLogger(__name__)


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the replica."""
        yield


class DirectServer:
    """Serves an app by HTTP/1.1, as many requests as have places; raise ConfigError for its files.

    A client that takes nothing for unread_s seconds is given up.
    """

    def __init__(
        self, app: ASGIApp, config: DirectConfig, places: Places, unread_s: float = 60.0
    ) -> None:
        self._config = config
        inside = RequestId(EndedByLeaving(Patience(Bounded(app, places), unread_s)))
        self._answers = LastAnswers(inside, time.monotonic)
        settings = uvicorn.Config(
            self._answers,
            lifespan="off",
            log_config=None,
            access_log=False,
            timeout_keep_alive=config.keep_alive_timeout_s,  # type: ignore[arg-type]  # any number
        )
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
        self._listener = listener
        self.port = listener.getsockname()[1]
        self._serving = asyncio.create_task(self._server.serve(sockets=[listener]))
        log.info("HTTP listens on %s:%d", host, self.port)

    async def hand_over(self, quiet_s: float, most_s: float) -> None:
        """Take no new connections, and answer on open ones until nothing was asked for quiet_s.

        Whoever listens on the port, too, has the new ones. It lasts most_s seconds at most.
        """
        self._answers.begin()
        with self._listener.dup() as last:
            for server in self._server.servers:
                server.close()
            # What waits to be accepted would be lost with the listener.
            await self._accept_all(last)
        with suppress(TimeoutError):
            async with asyncio.timeout(most_s):
                while (left := quiet_s - self._answers.quiet_s) > 0:  # noqa: ASYNC110 - a clock
                    await asyncio.sleep(min(left, quiet_s / 4))

    async def _accept_all(self, listener: socket.socket) -> None:
        listener.setblocking(False)
        accepted = []
        with suppress(BlockingIOError):
            while True:
                accepted.append(listener.accept()[0])
        listener.close()
        config, loop = self._server.config, asyncio.get_running_loop()
        made: Any = config.http_protocol_class
        protocol = partial(
            made,
            config=config,
            server_state=self._server.server_state,
            app_state=self._server.lifespan.state,
        )
        for connection in accepted:
            connection.setblocking(False)
            with suppress(OSError):
                await loop.connect_accepted_socket(protocol, connection, ssl=config.ssl)

    async def stop(self) -> None:
        """Close idle connections, and after a second all others."""
        self._server.should_exit = True
        _, late = await asyncio.wait({self._serving}, timeout=_CLOSE_S)
        self._server.force_exit = bool(late)
        await self._serving
