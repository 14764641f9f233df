"""A bound of the requests at once, which Serve's proxy has for what comes through it."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from deployments.ingress.doors.guard import OPEN, path_of
from deployments.ingress.doors.refusal import refuse
from foredraft.errors import Overloaded


class Bounded:
    """An ASGI app around another one: beyond `most` requests at once all but health get 429."""

    def __init__(self, app: ASGIApp, most: int) -> None:
        self._app, self._most = app, most
        self._running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or refuse it."""
        if scope["type"] != "http" or path_of(scope) in OPEN:
            await self._app(scope, receive, send)
            return
        if self._running >= self._most:
            error = Overloaded(f"the ingress has its {self._most} requests")
            await refuse(send, error, (b"retry-after", str(error.retry_after_s).encode()))
            return
        self._running += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._running -= 1
