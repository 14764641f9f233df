"""The answers of one request: those that find no room wait until one of the others ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TypeVar

from foredraft.errors import DeadlineExceeded, Overloaded

T = TypeVar("T")
# Begins an answer, given how many seconds are left and whether it may wait for room.
Make = Callable[[float, bool], AsyncGenerator[T]]

# Between two attempts of an answer that waits for other requests' ends.
_AGAIN_S = 0.25


class Turns:
    """Starts a request's answers as they find room; all of them end within timeout_s seconds."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._until = asyncio.get_running_loop().time() + timeout_s
        # Answers that run or are about to, and whether one ever ran.
        self._running = 0
        self._began = False
        self._change = asyncio.Event()

    async def events(self, make: Make[T]) -> AsyncGenerator[T]:
        """Yield an answer's events.

        An answer that is refused for want of room begins again when another one of the request has
        found some or has ended; while none runs, it may wait behind other requests. Raise
        Overloaded where none runs and none ever ran, DeadlineExceeded.
        """
        while True:
            try:
                async with aclosing(self._attempt(make)) as events:
                    async for event in events:
                        yield event
                return
            except _NoRoom as refused:
                if not self._running and not self._began:
                    raise refused.error from None
            await self._room()

    async def _attempt(self, make: Make[T]) -> AsyncGenerator[T]:
        may_wait = not self._running
        self._running += 1
        admitted = False
        try:
            async with aclosing(make(self._left(), may_wait)) as events:
                async for event in events:
                    if event is not None and not admitted:
                        admitted = self._began = True
                        self._changed()
                    yield event
        except Overloaded as error:
            if admitted:
                raise
            raise _NoRoom(error) from None
        finally:
            self._running -= 1
            if admitted:
                self._changed()

    def _changed(self) -> None:
        self._change.set()
        self._change = asyncio.Event()

    async def _room(self) -> None:
        """Return when another one has found room or has ended, or, where none runs, soon."""
        try:
            async with asyncio.timeout_at(self._until):
                if self._running:
                    await self._change.wait()
                else:
                    await asyncio.sleep(_AGAIN_S)
        except TimeoutError:
            raise self._late() from None

    def _left(self) -> float:
        left = self._until - asyncio.get_running_loop().time()
        if left <= 0:
            raise self._late()
        return left

    def _late(self) -> DeadlineExceeded:
        return DeadlineExceeded(f"the request did not finish within {self._timeout_s:g} s")


class _NoRoom(Exception):
    """An answer was refused before its first event."""

    def __init__(self, error: Overloaded) -> None:
        super().__init__(str(error))
        self.error = error
