"""The end of connections that are kept open: each closes with the next answer that begins."""

from __future__ import annotations

from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class LastAnswers:
    """An ASGI app around another one; once begun, every answer is its connection's last.

    A client may ask once more on a connection whose answer had begun before. clock is in seconds.
    """

    def __init__(self, app: ASGIApp, clock: Callable[[], float]) -> None:
        self._app, self._clock = app, clock
        self._begun = False
        self._running = 0
        self._ended_at = clock()

    def begin(self) -> None:
        """Begin: those that come from now on are the last ones."""
        self._begun, self._ended_at = True, self._clock()

    @property
    def quiet_s(self) -> float:
        """For how long nothing was asked, in seconds."""
        return 0.0 if self._running else self._clock() - self._ended_at

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""

        async def marked(message: Message) -> None:
            if self._begun and message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], (b"connection", b"close")]}
            await send(message)

        self._running += 1
        try:
            await self._app(scope, receive, marked)
        finally:
            self._running -= 1
            self._ended_at = self._clock()
