"""The door of the HTTP ingress: without a key only health, with one as much as it may."""

from __future__ import annotations

from contextlib import ExitStack

from starlette.types import ASGIApp, Receive, Scope, Send

from deployments.ingress.doors.admission import Admission
from deployments.ingress.doors.refusal import refuse
from foredraft.errors import Overloaded, Unauthenticated

OPEN = frozenset({"/health", "/health/live", "/health/ready"})


class Guard:
    """An ASGI app around another one. Every route but health needs a key, unknown ones too.

    A request under way counts until its last byte is sent or its client left.
    """

    def __init__(self, app: ASGIApp, admission: Admission) -> None:
        self._app = app
        self._admission = admission

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer 401 or 429."""
        if scope["type"] != "http" or path_of(scope) in OPEN:
            await self._app(scope, receive, send)
            return
        with ExitStack() as inside:
            try:
                inside.enter_context(self._admission.entered(_authorization(scope)))
            except Unauthenticated as error:
                await refuse(send, error, (b"www-authenticate", b"Bearer"))
                return
            except Overloaded as error:
                await refuse(send, error, (b"retry-after", str(error.retry_after_s).encode()))
                return
            await self._app(scope, receive, send)


def path_of(scope: Scope) -> str:
    """Return the request's path below the application's prefix."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", "").rstrip("/"))


def _authorization(scope: Scope) -> str:
    """Return the request's one Authorization header, "" where there is none or several."""
    found = [value for name, value in scope["headers"] if name == b"authorization"]
    return found[0].decode("latin-1") if len(found) == 1 else ""
