"""How a server stops: no new requests, and those under way get a while to end by themselves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import TypeVar

from foredraft.errors import Unavailable

T = TypeVar("T")

# What the last events of streams may take to be sent, in seconds.
_CLOSE_S = 1.0


class Stopping:
    """The streams under way, and until when they may go on once the server stops.

    Before it stops, a server that others take over from is not ready any more, and still answers.
    """

    def __init__(self) -> None:
        self.ready = True
        self._until: float | None = None
        self._under_way = 0
        self._waiting: set[asyncio.Timeout] = set()
        self._empty = asyncio.Event()
        self._empty.set()

    def check_ready(self) -> None:
        """Raise Unavailable once the server is not to be sent requests any more."""
        if not self.ready:
            raise Unavailable("the server is stopping")

    @property
    def under_way(self) -> int:
        """The number of requests that are under way."""
        return self._under_way

    def check(self) -> None:
        """Raise Unavailable once the server stops."""
        if self._until is not None:
            raise Unavailable("the server is stopping")

    async def bounded(self, stream: AsyncGenerator[T]) -> AsyncGenerator[T]:
        """Yield what stream yields; raise Unavailable where it goes on beyond the grace period."""
        self.check()
        self._under_way += 1
        self._empty.clear()
        try:
            async with aclosing(stream):
                while True:
                    scope = asyncio.timeout_at(self._until)
                    self._waiting.add(scope)
                    try:
                        async with scope:
                            item = await anext(stream)
                    except StopAsyncIteration:
                        return
                    except TimeoutError:
                        if scope.expired():
                            raise Unavailable("the server is stopping") from None
                        raise
                    finally:
                        self._waiting.discard(scope)
                    yield item
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._empty.set()

    async def drain(self, grace_s: float) -> None:
        """Begin to stop; return when nothing is under way any more, or a client is slow to read.

        What still is after grace_s seconds ends with Unavailable.
        """
        self.ready = False
        self._until = asyncio.get_running_loop().time() + grace_s
        for scope in self._waiting:
            scope.reschedule(self._until)
        with suppress(TimeoutError):
            async with asyncio.timeout(grace_s + _CLOSE_S):
                await self._empty.wait()
