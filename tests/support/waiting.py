"""Waiting for what shall come about, with a deadline that only a failure reaches."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

DEADLINE_S = 60.0
T = TypeVar("T")


async def eventually(
    condition: Callable[[], bool | Awaitable[bool]], every_s: float = 0.005
) -> None:
    """Return once the condition holds; raise TimeoutError if it does not."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            holds = condition()
            if holds if isinstance(holds, bool) else await holds:
                return
            await asyncio.sleep(every_s)


async def settled(value: Callable[[], T]) -> T:
    """Return a value once it has been the same for many looks."""
    looks, last = 0, value()
    async with asyncio.timeout(DEADLINE_S):
        while looks < 40:
            await asyncio.sleep(0.005)
            now = value()
            looks, last = (looks + 1, last) if now == last else (0, now)
    return last


async def turns(count: int = 50) -> None:
    """Let the other tasks of the loop run that often: as far as they come without waiting."""
    for _ in range(count):
        await asyncio.sleep(0)
