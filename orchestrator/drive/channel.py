"""A bounded channel of events from one producer task to one consumer."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class BoundedChannel(Generic[T]):
    """An async iterator over what one task puts in; put waits while `limit` items are unread.

    Unlike asyncio.Queue it can be ended, from any state and without waiting.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._items: deque[T] = deque()
        self._ended = False
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None

    async def put(self, item: T) -> None:
        """Put an item in, waiting for room."""
        while len(self._items) >= self._limit:
            self._writer = asyncio.get_running_loop().create_future()
            await self._writer
        self._items.append(item)
        _wake(self._reader)

    def end(self) -> None:
        """Let the iterator stop after the items it has."""
        self._ended = True
        _wake(self._reader)

    def __aiter__(self) -> BoundedChannel[T]:
        return self

    async def __anext__(self) -> T:
        while not self._items:
            if self._ended:
                raise StopAsyncIteration
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        item = self._items.popleft()
        _wake(self._writer)
        return item


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
