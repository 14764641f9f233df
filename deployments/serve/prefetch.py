"""One value made ahead of need, so that taking it costs no time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from foredraft.errors import ForedraftError

T = TypeVar("T")

log = logging.getLogger(__name__)


class Spare(Generic[T]):
    """Holds a value of `make` that is at most keep_s seconds old; each is handed out once.

    The next one is made refill_s seconds after one was taken, when whoever took it is past its own
    first steps.
    """

    def __init__(
        self,
        make: Callable[[], Awaitable[T]],
        clock: Callable[[], float],
        keep_s: float = 5.0,
        refill_s: float = 0.05,
    ) -> None:
        self._make = make
        self._clock = clock
        self._keep_s, self._refill_s = keep_s, refill_s
        self._ready: tuple[float, T] | None = None
        self._refilling: asyncio.Task[None] | None = None

    async def take(self) -> T:
        """Return the spare value, or make one now; raise what `make` raises."""
        ready, self._ready = self._ready, None
        if ready is None or self._clock() - ready[0] > self._keep_s:
            value = await self._make()
        else:
            value = ready[1]
        if self._refilling is None:
            self._refilling = asyncio.create_task(self._refill())
        return value

    async def _refill(self) -> None:
        try:
            await asyncio.sleep(self._refill_s)
            self._ready = (self._clock(), await self._make())
        except ForedraftError as error:
            log.info("no spare: %s", error)
        finally:
            self._refilling = None
