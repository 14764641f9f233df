"""Work in a thread, from an event loop whose process may be ending."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

from foredraft.errors import Unavailable

T = TypeVar("T")


def in_thread(work: Callable[[], T], executor: Executor | None = None) -> asyncio.Future[T]:
    """Start work in one of the executor's threads, or of the event loop's own.

    Raise Unavailable where no work is taken any more: a process that ends lets its event loop go on
    for a while, after its executors. Requests then belong to another replica.
    """
    loop = asyncio.get_running_loop()
    try:
        return loop.run_in_executor(executor, work)
    except RuntimeError as error:
        raise Unavailable(f"this replica is ending: {error}") from None
