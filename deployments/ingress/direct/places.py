"""Places for requests: who finds none waits, and a free one goes to the tenant with the fewest."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from foredraft.errors import Overloaded


class Places:
    """So many requests at once; so many more wait, each for within_s seconds at most.

    A tenant's requests come in their order. Where too many wait, the newest of the tenant that has
    most waiting is refused: one that sends a thousand takes from others neither places nor the
    chance to wait for one.
    """

    def __init__(self, most: int, waiting: int, within_s: float) -> None:
        self._most, self._waiting, self._within_s = most, waiting, within_s
        self._free = most
        self._running: Counter[str] = Counter()
        self._lines: dict[str, deque[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def place(self, tenant: str) -> AsyncIterator[None]:
        """Hold a place; raise Overloaded where there is none in time."""
        await self._take(tenant)
        try:
            yield
        finally:
            self._give_back(tenant)

    async def _take(self, tenant: str) -> None:
        if self._free:
            self._free -= 1
            self._running[tenant] += 1
            return
        turn = self._in_line(tenant)
        try:
            async with asyncio.timeout(self._within_s):
                await turn
        except TimeoutError:
            self._leave(tenant, turn)
            raise self._refusal() from None
        except asyncio.CancelledError:
            self._leave(tenant, turn)
            raise

    def _in_line(self, tenant: str) -> asyncio.Future[None]:
        """Return what is done when it is the tenant's turn; raise Overloaded where all is full."""
        if sum(map(len, self._lines.values())) >= self._waiting:
            longest = max(self._lines, key=lambda name: len(self._lines[name]), default=tenant)
            own = len(self._lines.get(tenant, ()))
            if len(self._lines.get(longest, ())) <= own + 1:
                raise self._refusal()
            newest = self._lines[longest].pop()
            if not newest.done():
                newest.set_exception(self._refusal())
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lines.setdefault(tenant, deque()).append(turn)
        return turn

    def _leave(self, tenant: str, turn: asyncio.Future[None]) -> None:
        """Give up a turn that has not come, or that nobody takes any more."""
        line = self._lines.get(tenant)
        if line is not None and turn in line:
            line.remove(turn)
            if not line:
                del self._lines[tenant]
        elif turn.done() and not turn.cancelled() and turn.exception() is None:
            self._give_back(tenant)

    def _give_back(self, tenant: str) -> None:
        self._running[tenant] -= 1
        if not self._running[tenant]:
            del self._running[tenant]
        while self._lines:
            tenant = min(self._lines, key=lambda name: self._running[name])
            line = self._lines.pop(tenant)
            turn = line.popleft()
            if line:
                # Behind the others with as few: of equals each has its turn.
                self._lines[tenant] = line
            if not turn.done():
                self._running[tenant] += 1
                turn.set_result(None)
                return
        self._free += 1

    def _refusal(self) -> Overloaded:
        return Overloaded(f"the ingress has its {self._most} requests, and enough that wait")
