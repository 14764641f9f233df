"""Serve's choice of a replica, made ahead of need, so that taking it costs no time."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from foredraft.errors import ForedraftError

T = TypeVar("T")

log = logging.getLogger(__name__)

# So many equal choices in a row are of one replica alone: of two, Serve takes the idler one.
_SURE = 4


class Choices(Generic[T]):
    """Holds a choice of `choose` that is at most keep_s seconds old; each is handed out once.

    The next one is made refill_s seconds after one was taken, when whoever took it is past its own
    first steps. While there seems to be one replica alone, its choice is handed out to all, and
    made again after again_s seconds: it takes the CPU time of some passes of a small target.
    """

    def __init__(
        self,
        choose: Callable[[], Awaitable[T]],
        clock: Callable[[], float],
        keep_s: float = 5.0,
        again_s: float = 1.0,
        refill_s: float = 0.05,
    ) -> None:
        self._choose = choose
        self._clock = clock
        self._keep_s, self._again_s, self._refill_s = keep_s, again_s, refill_s
        self._ready: T | None = None
        self._refilling: asyncio.Task[None] | None = None
        self._last: deque[T] = deque(maxlen=_SURE)
        self._chosen_at = 0.0

    async def take(self) -> T:
        """Return a choice, or make one now; raise what `choose` raises."""
        age_s = self._clock() - self._chosen_at
        if self._one_alone and age_s <= self._keep_s:
            if age_s > self._again_s:
                self._refill_soon()
            return self._last[-1]
        ready, self._ready = self._ready, None
        value = await self._made() if ready is None or age_s > self._keep_s else ready
        self._refill_soon()
        return value

    def failed(self) -> None:
        """Forget all choices: the replica that was chosen is gone or full."""
        self._ready = None
        self._last.clear()

    @property
    def _one_alone(self) -> bool:
        return len(self._last) == _SURE and len(set(self._last)) == 1

    async def _made(self) -> T:
        value = await self._choose()
        self._last.append(value)
        self._chosen_at = self._clock()
        return value

    def _refill_soon(self) -> None:
        if self._refilling is None:
            self._refilling = asyncio.create_task(self._refill())

    async def _refill(self) -> None:
        try:
            await asyncio.sleep(self._refill_s)
            self._ready = await self._made()
        except ForedraftError as error:
            log.info("no choice ahead of need: %s", error)
        finally:
            self._refilling = None
