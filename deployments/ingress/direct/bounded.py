"""A bound of the requests at once, which Serve's proxy has for what comes through it."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from deployments.ingress.direct.places import Places
from deployments.ingress.doors.guard import OPEN, path_of
from deployments.ingress.doors.refusal import refuse
from foredraft.errors import Overloaded


class Bounded:
    """An ASGI app around another one: all requests but health wait for a place, or get 429."""

    def __init__(self, app: ASGIApp, places: Places) -> None:
        self._app, self._places = app, places

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or refuse it."""
        if scope["type"] != "http" or path_of(scope) in OPEN:
            await self._app(scope, receive, send)
            return
        begun = False
        try:
            async with self._places.place(_tenant(scope)):
                begun = True
                await self._app(scope, receive, send)
        except Overloaded as error:
            if begun:
                raise
            await refuse(send, error, (b"retry-after", str(error.retry_after_s).encode()))


def _tenant(scope: Scope) -> str:
    """Return whose request it is: what it shows as a key, right or wrong, else where it is from."""
    for name, value in scope["headers"]:
        if name == b"authorization":
            return str(hash(value))
    client = scope.get("client")
    return client[0] if client else ""
