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
                # A browser asks its user for the key where it wants to show the playground.
                asked = b'Basic realm="foredraft"' if path_of(scope) in ("", "/") else b"Bearer"
                await refuse(send, error, (b"www-authenticate", asked))
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
    """Return the request's one Authorization header, "" where there is none or several.

    What a browser adds by itself counts for this server's own pages alone.
    """
    found: list[bytes] = [value for name, value in scope["headers"] if name == b"authorization"]
    if len(found) != 1 or (found[0][:5].lower() == b"basic" and is_foreign(scope)):
        return ""
    return found[0].decode("latin-1")


def is_foreign(scope: Scope) -> bool:
    """Return whether a browser sends the request for a page of another site."""
    origins = [value for name, value in scope["headers"] if name == b"sec-fetch-site"]
    return any(value not in (b"same-origin", b"none") for value in origins)
