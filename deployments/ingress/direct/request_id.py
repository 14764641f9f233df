"""`x-request-id`, as Serve has it: the client's or a fresh one, in the answer and in the log."""

from __future__ import annotations

import logging
import time
import uuid

from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = logging.getLogger("ray.serve")

_HEADER = b"x-request-id"
_MAX_LENGTH = 128


class RequestId:
    """An ASGI app around another one: every answer names its request, and so does a log line."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        name = _given(scope) or uuid.uuid4().hex
        started, status = time.monotonic(), 0

        async def named(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                kept = [each for each in message["headers"] if each[0].lower() != _HEADER]
                message = {**message, "headers": [*kept, (_HEADER, name.encode())]}
            await send(message)

        try:
            await self._app(scope, receive, named)
        finally:
            took_ms = 1000 * (time.monotonic() - started)
            method, path = scope["method"], scope["path"]
            log.info("%s %s %s %d %.1fms", name, method, path, status, took_ms)


def _given(scope: Scope) -> str:
    """Return the client's own name for the request, "" where it is none that a log can hold."""
    found = dict(scope["headers"]).get(_HEADER, b"").decode("latin-1")
    return found if len(found) <= _MAX_LENGTH and found.isascii() and found.isprintable() else ""
