"""Streams on their way out: closed in the background, waited for once, for a bounded time."""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

log = logging.getLogger(__name__)


class Closable(Protocol):
    """Anything with a life on a replica."""

    async def close(self) -> None:
        """End it; never raises."""


class BackgroundCloser:
    """Closes the streams of one session."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def close(self, stream: Closable) -> None:
        """Start closing a stream."""
        task = asyncio.create_task(stream.close())
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def wait(self, timeout_s: float) -> None:
        """Wait until all have ended, at most timeout_s seconds."""
        if self._tasks:
            _, late = await asyncio.wait(set(self._tasks), timeout=timeout_s)
            for task in late:
                task.cancel()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.warning("closing a stream failed", exc_info=task.exception())
