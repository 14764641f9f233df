"""A request's id, in and out, and one line of log for each request: no prompt, no text."""

from __future__ import annotations

import json
import logging
import re
import uuid
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deployments.ingress.doors.guard import path_of

HEADER = b"x-request-id"
_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")
_log = logging.getLogger("foredraft.requests")


class RequestIds:
    """An ASGI app around another one.

    The client's x-request-id, if it is well-formed, else a fresh one, is in every answer.
    """

    def __init__(self, app: ASGIApp, clock: Callable[[], float]) -> None:
        self._app = app
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request with its id."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        asked = dict(scope["headers"]).get(HEADER, b"")
        name = asked if _ID.fullmatch(asked) else uuid.uuid4().hex.encode()
        began, status = self._clock(), 0

        async def with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                others = [each for each in message["headers"] if each[0].lower() != HEADER]
                message = {**message, "headers": [*others, (HEADER, name)]}
            await send(message)

        try:
            await self._app(scope, receive, with_id)
        finally:
            line = {
                "request": name.decode(),
                "method": scope["method"],
                "path": path_of(scope)[:128],
                # 0: the client left before the answer began.
                "status": status,
                "seconds": round(self._clock() - began, 4),
            }
            _log.info(json.dumps(line))
