"""New sessions without room at their target wait in line: first come, first served by tenant.

A session's end here is known at once; sessions of other orchestrators and new replicas are not, so
the first of each line also tries again after pauses.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from foredraft.errors import Overloaded

# Pauses between two attempts double: a replica frees a session's KV soon after its end.
_FIRST_PAUSE_S = 0.005
_LONGEST_PAUSE_S = 0.1

Attempt = Callable[[], Awaitable[None]]
# Runs an attempt to open a session, as often as it has to be.
Admit = Callable[[Attempt], Awaitable[None]]


async def at_once(attempt: Attempt) -> None:
    """Admit a session where there is room, and let none wait."""
    await attempt()


class WaitingLine:
    """The sessions of one orchestrator that wait for room at one target."""

    def __init__(self) -> None:
        # By tenant, none of them empty. An event is set to wake its session.
        self._lines: dict[str, deque[asyncio.Event]] = {}

    @property
    def waiting(self) -> int:
        """How many sessions wait."""
        return sum(map(len, self._lines.values()))

    def ended(self) -> None:
        """Wake the first of each line: a session has ended."""
        for line in self._lines.values():
            line[0].set()

    async def admit(self, attempt: Attempt, tenant: str, wait_s: float) -> None:
        """Run an attempt, behind those of the tenant that wait, until it finds room.

        Raise its Overloaded after wait_s seconds, and any other error at once.
        """
        refused = Overloaded("requests that came before wait for room, too")
        if tenant not in self._lines:
            try:
                return await attempt()
            except Overloaded as error:
                refused = error
        if not wait_s:
            raise refused
        turn = asyncio.Event()
        line = self._lines.setdefault(tenant, deque())
        line.append(turn)
        try:
            await self._in_line(attempt, line, turn, wait_s, refused)
        finally:
            first = line[0] is turn
            line.remove(turn)
            if not line:
                del self._lines[tenant]
            elif first:
                line[0].set()

    async def _in_line(
        self,
        attempt: Attempt,
        line: deque[asyncio.Event],
        turn: asyncio.Event,
        wait_s: float,
        refused: Overloaded,
    ) -> None:
        pause_s, clock = _FIRST_PAUSE_S, asyncio.get_running_loop().time
        until = clock() + wait_s
        while (left_s := until - clock()) > 0:
            try:
                async with asyncio.timeout(min(pause_s, left_s) if line[0] is turn else left_s):
                    await turn.wait()
                turn.clear()
                pause_s = _FIRST_PAUSE_S
            except TimeoutError:
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            if line[0] is turn:
                try:
                    return await attempt()
                except Overloaded as error:
                    refused = error
        raise refused
