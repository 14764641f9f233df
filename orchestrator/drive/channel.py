"""A bounded channel of events from one producer task to one consumer."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Generic, TypeVar

from foredraft.errors import DeadlineExceeded

T = TypeVar("T")


class BoundedChannel(Generic[T]):
    """An async iterator over what one task puts in; put waits while `limit` items are unread.

    A reader that waits is woken at most once in interval_s seconds, unless `limit` items are there:
    what comes meanwhile is read together. Unlike asyncio.Queue the channel can be ended, from any
    state and without waiting. A reader who takes nothing for patience_s seconds is given up, and
    one for whom nothing comes in quiet_s seconds is given None.
    """

    def __init__(
        self,
        limit: int,
        interval_s: float = 0.0,
        patience_s: float | None = None,
        quiet_s: float | None = None,
    ) -> None:
        self._limit = limit
        self._quiet_s = quiet_s
        self._patience_s = patience_s
        self._interval_s = interval_s
        self._items: deque[T] = deque()
        self._ended = False
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None
        self._loop = asyncio.get_running_loop()
        # When the reader may be woken next, and what will do so.
        self._due = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        """How many items can be read at once."""
        return len(self._items)

    async def put(self, item: T) -> None:
        """Put an item in, waiting for room; raise DeadlineExceeded for a reader given up."""
        while len(self._items) >= self._limit:
            self._writer = self._loop.create_future()
            done, _ = await asyncio.wait([self._writer], timeout=self._patience_s)
            if not done:
                raise DeadlineExceeded(f"nothing was read for {self._patience_s:g} s")
        self._items.append(item)
        if self._reader is None or self._reader.done():
            return
        if len(self._items) >= self._limit or self._loop.time() >= self._due:
            self._wake_reader()
        elif self._timer is None:
            self._timer = self._loop.call_at(self._due, self._wake_reader)

    def end(self) -> None:
        """Let the iterator stop after the items it has."""
        self._ended = True
        self._wake_reader()

    def __aiter__(self) -> BoundedChannel[T]:
        return self

    async def __anext__(self) -> T | None:
        while not self._items:
            if self._ended:
                raise StopAsyncIteration
            self._reader = reader = self._loop.create_future()
            if self._quiet_s is None:
                await reader
            elif await self._quiet(reader, self._quiet_s):
                return None
        item = self._items.popleft()
        _wake(self._writer)
        return item

    async def _quiet(self, reader: asyncio.Future[None], seconds: float) -> bool:
        """Wait for what wakes the reader; return whether nothing did."""
        timer = self._loop.call_later(seconds, _wake, reader)
        try:
            await reader
        finally:
            timer.cancel()
        return self._loop.time() >= timer.when() and not (self._items or self._ended)

    def _wake_reader(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._due = self._loop.time() + self._interval_s
        _wake(self._reader)


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
