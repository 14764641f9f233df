"""What is done to the cluster's processes, one thing after the other, and when."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from random import Random
from typing import NamedTuple

# A fault may still be felt for so long after it has ended: a replica starts again, sessions move.
FELT_S = 20.0
_BETWEEN_S = (1.0, 4.0)
_STOPPED_S = (1.0, 6.0)
_SLOWED_S = 4.0
_SLICE_S = 0.05

Pids = Callable[[str], Sequence[int]]
Sleep = Callable[[float], Awaitable[None]]


class Fault(NamedTuple):
    """One fault, from when to when it may be felt, in seconds."""

    service: str
    kind: str
    began: float
    ended: float


class Faults:
    """Kills, stops, ends and slows replicas, at random; everything goes on in the end.

    The ingress is one process, and every stream goes through it: it is killed least often.
    """

    def __init__(self, pids: Pids, random: Random, clock: Callable[[], float]) -> None:
        self._pids, self._random, self._clock = pids, random, clock
        self._stopped: set[int] = set()
        self.log: list[Fault] = []

    async def run(self, until: float, sleep: Sleep = asyncio.sleep) -> None:
        """Do one thing after the other until a time of the clock."""
        try:
            while self._clock() < until:
                await sleep(self._random.uniform(*_BETWEEN_S))
                service = self._random.choices(("drafter", "verifier", "ingress"), (5, 5, 1))[0]
                kinds = ("kill",) if service == "ingress" else ("kill", "stop", "end", "slow")
                await self._do(service, self._random.choice(kinds), sleep)
        finally:
            for pid in tuple(self._stopped):
                self._signal(pid, signal.SIGCONT)

    def felt(self, began: float, ended: float) -> set[str]:
        """Return the services whose faults a request from began to ended may have felt."""
        return {f.service for f in self.log if f.began <= ended and began <= f.ended + FELT_S}

    def counts(self) -> dict[str, int]:
        """Return how often what was done."""
        return dict(sorted(Counter(f"{f.kind} {f.service}" for f in self.log).items()))

    async def _do(self, service: str, kind: str, sleep: Sleep) -> None:
        running = self._pids(service)
        if not running:
            return
        pid, began = self._random.choice(list(running)), self._clock()
        place = len(self.log)
        self.log.append(Fault(service, kind, began, float("inf")))
        if kind == "kill":
            self._signal(pid, signal.SIGKILL)
        elif kind == "end":
            self._signal(pid, signal.SIGTERM)
        elif kind == "stop":
            self._signal(pid, signal.SIGSTOP)
            await sleep(self._random.uniform(*_STOPPED_S))
            self._signal(pid, signal.SIGCONT)
        else:
            for _ in range(int(_SLOWED_S / (2 * _SLICE_S))):
                self._signal(pid, signal.SIGSTOP)
                await sleep(_SLICE_S)
                self._signal(pid, signal.SIGCONT)
                await sleep(_SLICE_S)
        self.log[place] = Fault(service, kind, began, self._clock())

    def _signal(self, pid: int, number: signal.Signals) -> None:
        if number is signal.SIGSTOP:
            self._stopped.add(pid)
        else:
            self._stopped.discard(pid)
        # It may have ended meanwhile.
        with suppress(ProcessLookupError):
            os.kill(pid, number)
