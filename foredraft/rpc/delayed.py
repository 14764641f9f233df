"""A gRPC call over a link that takes time: each message is passed on late, in its order.

What is on the way does not hold up what comes after it, as in a real link: the delay is latency,
not bandwidth.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import grpc

from foredraft.rpc.config import LinkConfig

# A message and when it is due, in seconds of the loop's clock.
_Message = tuple[Any, float]


class DelayedCall:
    """Stands for a bidirectional grpc.aio call, whose messages it delays both ways.

    A write returns at once, as one to a socket's buffer does; what it fails of is raised by the
    next read. The end of the call is not delayed.
    """

    def __init__(
        self, call: Any, link: LinkConfig, random_of_1: Callable[[], float] = random.random
    ) -> None:
        self._call, self._link, self._random_of_1 = call, link, random_of_1
        self._loop = asyncio.get_running_loop()
        self._sent: asyncio.Queue[_Message] = asyncio.Queue()
        self._received: asyncio.Queue[_Message] = asyncio.Queue()
        # Messages keep their order: each is due at the one before at the earliest.
        self._last_sent = self._last_received = 0.0
        self._tasks = (
            self._loop.create_task(self._send()),
            self._loop.create_task(self._receive()),
        )
        call.add_done_callback(lambda _: self._tasks[0].cancel())

    async def write(self, message: Any) -> None:
        """Send a message, which arrives later."""
        if self._call.done():
            # Raises what the call ended with.
            await self._call.write(message)
        self._last_sent = self._due(self._last_sent)
        self._sent.put_nowait((message, self._last_sent))

    async def read(self) -> Any:
        """Return the next message once it is due, or EOF; raise what the call ended with."""
        message, due = await self._received.get()
        if isinstance(message, BaseException) or message is grpc.aio.EOF:
            # The next read ends alike.
            self._received.put_nowait((message, due))
        await asyncio.sleep(due - self._loop.time())
        if isinstance(message, BaseException):
            raise message
        return message

    def cancel(self) -> bool:
        """End the call."""
        for task in self._tasks:
            task.cancel()
        self._received.put_nowait((asyncio.InvalidStateError("cancelled"), 0.0))
        return bool(self._call.cancel())

    def __getattr__(self, name: str) -> Any:
        """Return what else a call has: its status, its callbacks."""
        return getattr(self._call, name)

    def _due(self, last: float) -> float:
        delay_ms = self._link.delay_ms + self._random_of_1() * self._link.jitter_ms
        return max(last, self._loop.time() + delay_ms / 1e3)

    async def _send(self) -> None:
        while True:
            message, due = await self._sent.get()
            await asyncio.sleep(due - self._loop.time())
            try:
                await self._call.write(message)
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                # The reader learns why.
                return

    async def _receive(self) -> None:
        message: Any = None
        while message is not grpc.aio.EOF and not isinstance(message, Exception):
            try:
                message = await self._call.read()
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
                message = error
            self._last_received = self._due(self._last_received)
            self._received.put_nowait((message, self._last_received))
