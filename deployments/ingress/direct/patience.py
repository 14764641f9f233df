"""How long a client may take to send a request, and to take what it is sent."""

from __future__ import annotations

import asyncio
import logging

from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = logging.getLogger(__name__)

# Of a body, from the request's head on.
BODY_S = 60.0


class Patience:
    """An ASGI app around another one: whoever sends no body, or takes nothing, is given up.

    unread_s bounds each message that is sent: the server's own buffers are full by then.
    """

    def __init__(self, app: ASGIApp, unread_s: float, body_s: float = BODY_S) -> None:
        self._app, self._unread_s, self._body_s = app, unread_s, body_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and end it where its client is given up: the connection ends, too."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        until = asyncio.get_running_loop().time() + self._body_s
        whole = given_up = False

        async def timely() -> Message:
            nonlocal whole
            if whole:
                # What comes behind the body is that the client has left.
                return await receive()
            try:
                async with asyncio.timeout_at(until):
                    message = await receive()
            except TimeoutError:
                return {"type": "http.disconnect"}
            whole = not message.get("more_body", False)
            return message

        async def taken(message: Message) -> None:
            nonlocal given_up
            try:
                async with asyncio.timeout(self._unread_s):
                    await send(message)
            except TimeoutError:
                given_up = True
                # No error: nobody is there to be sent one.
                raise asyncio.CancelledError from None

        try:
            await self._app(scope, timely, taken)
        except asyncio.CancelledError:
            if not given_up:
                raise
            log.warning("a client took nothing for %g s", self._unread_s)
