"""What Serve's proxy does for an app when a client leaves: its request is cancelled."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_LEFT = "http.disconnect"


class EndedByLeaving:
    """An ASGI app around another one, whose request ends once its client is gone."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on until it is answered or its client has left."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # Bounded: a body is read no faster than the app takes it.
        messages: asyncio.Queue[Message] = asyncio.Queue(1)

        async def read() -> None:
            while (message := await receive())["type"] != _LEFT:
                await messages.put(message)

        reading = asyncio.create_task(read())
        answering = asyncio.create_task(self._answer(scope, messages.get, send))
        try:
            await asyncio.wait([reading, answering], return_when=asyncio.FIRST_COMPLETED)
        finally:
            # Cancelled here, too, both end before this request does.
            reading.cancel()
            if not answering.done():
                answering.cancel()
            await asyncio.wait([reading, answering])
        if not answering.cancelled() and (error := answering.exception()):
            raise error

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)
