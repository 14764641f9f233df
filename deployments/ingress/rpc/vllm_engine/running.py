"""The requests under way, by the ids that their clients chose, so that they can be aborted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from itertools import count
from typing import TypeVar

from foredraft.errors import InvalidRequest

T = TypeVar("T")

_MAX_ID = 256


class Request:
    """One request, which an abort ends between two items of its stream or while it waits."""

    def __init__(self) -> None:
        self.aborted = False
        self._waiting: asyncio.Timeout | None = None

    def abort(self) -> None:
        """End the request."""
        self.aborted = True
        if self._waiting is not None:
            self._waiting.reschedule(asyncio.get_running_loop().time())

    async def items(self, stream: AsyncGenerator[T]) -> AsyncGenerator[T]:
        """Yield what a stream does, until its end or an abort."""
        while not self.aborted:
            try:
                async with asyncio.timeout(None) as self._waiting:
                    item = await anext(stream)
            except StopAsyncIteration:
                return
            except TimeoutError:
                if self.aborted:
                    return
                raise
            finally:
                self._waiting = None
            yield item


class Running:
    """Requests by their client and id; a client is whoever shows a key."""

    def __init__(self) -> None:
        self._requests: dict[tuple[str, str], Request] = {}
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._requests)

    @contextmanager
    def entered(self, client: str, request_id: str) -> Iterator[Request]:
        """Have a request run while this is entered; raise InvalidRequest naming request_id."""
        if len(request_id) > _MAX_ID:
            raise InvalidRequest(
                f"request_id has more than {_MAX_ID} characters", param="request_id"
            )
        # Without an id none can be named, and none is in another's way.
        key, request = (client, request_id or f"\0{next(self._numbers)}"), Request()
        if key in self._requests:
            raise InvalidRequest(
                f"request_id {request_id!r} is that of a running request", param="request_id"
            )
        self._requests[key] = request
        try:
            yield request
        finally:
            del self._requests[key]

    def abort(self, client: str, request_id: str) -> None:
        """End a client's request; one that does not run is passed over."""
        if request := self._requests.get((client, request_id)):
            request.abort()
