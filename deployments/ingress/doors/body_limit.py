"""The bound of a request's body, which need not say its length."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deployments.ingress.doors.refusal import refuse
from foredraft.errors import InvalidRequest


class TooLarge(InvalidRequest):
    """A request's body is too large."""

    http_code = 413


class BodyLimit:
    """An ASGI app around another one: a body of more than `most` bytes is answered 413."""

    def __init__(self, app: ASGIApp, most: int) -> None:
        self._app = app
        self._most = most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, as far as its body is read."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        error = TooLarge(f"the body has more than {self._most} bytes")
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if not length.isdigit() or int(length) > self._most:
            await refuse(send, error)
            return
        read = 0

        async def counted() -> Message:
            nonlocal read
            part = await receive()
            read += len(part.get("body", b""))
            if read > self._most:
                raise HTTPException(error.http_code, str(error))
            return part

        await self._app(scope, counted, send)
