"""An asyncio event loop in virtual time: nothing waits, the clock jumps to the next timer.

What runs in it is asyncio code as it is; only what it sleeps for takes no time. Two runs of the
same code do the same in the same order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine
from typing import Any, TypeVar

from foredraft.errors import ForedraftError

T = TypeVar("T")


class _Jump:
    """A selector without files: to wait is to move the clock on."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        """Move the clock on by timeout seconds; raise ForedraftError if nothing is to come."""
        if timeout is None:
            raise ForedraftError("the simulation stands still: everything waits for something")
        self._loop.now += timeout
        return []


class VirtualLoop(asyncio.BaseEventLoop):
    """The loop; now is its time in seconds, from 0."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        # Where BaseEventLoop waits.
        self._selector = _Jump(self)

    def time(self) -> float:
        """Return the virtual time."""
        return self.now

    def _process_events(self, event_list: list[Any]) -> None:
        """Do nothing: there are no files."""

    def _write_to_self(self) -> None:
        """Do nothing: there are no other threads."""


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in a new virtual loop; what it leaves running is cancelled."""
    loop = VirtualLoop()
    try:
        try:
            return loop.run_until_complete(main)
        finally:
            loop.run_until_complete(_cancelled(asyncio.all_tasks(loop)))
            loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()


async def _cancelled(tasks: Collection[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
