"""One deployment's replicas: started, chosen, drained, lost and replaced, as Ray Serve does it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from foredraft.errors import Unavailable
from foredraft_simulator.scenario.pools import PoolConfig
from foredraft_simulator.scenario.scenario import ServeConfig
from foredraft_simulator.virtual.engine import VirtualEngine

# As long as a session waits for a replica to be there (deployments/serve/platform/replicas.py).
CHOOSE_TIMEOUT_S = 2.0
# How often a stopping replica looks for sessions.
_DRAIN_STEP_S = 0.1


class Replica(Protocol):
    """What a pool holds."""

    address: str
    draining: bool

    @property
    def engine(self) -> VirtualEngine[Any]:
        """What it runs."""

    @property
    def sessions(self) -> int:
        """How many sessions are open."""


R = TypeVar("R", bound=Replica)


class PoolSize(NamedTuple):
    """How many replicas there are from a time on: paid for, serving, and to be."""

    time_s: float
    paid: int
    serving: int
    target: int


class SimulatedPool(Generic[R]):
    """Replicas of one service; make(address) makes one."""

    def __init__(
        self,
        name: str,
        config: PoolConfig,
        serve: ServeConfig,
        make: Callable[[str], R],
        random: Random,
    ) -> None:
        self.name, self.config = name, config
        self._serve, self._make, self._random = serve, make, random
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._made = 0
        # Passes of the replicas that are gone.
        self._gone_steps = 0
        # Those that start, oldest first, by a number.
        self._starting: dict[int, asyncio.Task[None]] = {}
        self._serving: dict[str, R] = {}
        self._stopping: dict[str, R] = {}
        self._started = asyncio.Event()
        self._paid_s = self._paid_until = 0.0
        self.target = config.initial
        self.sizes: list[PoolSize] = []
        for _ in range(self.target):
            self._serve_one()
        self._note()

    def find(self, address: str) -> R | None:
        """Return the replica at an address, None if it is gone."""
        return self._serving.get(address) or self._stopping.get(address)

    @property
    def serving(self) -> tuple[R, ...]:
        """The replicas that take sessions, oldest first."""
        return tuple(self._serving.values())

    @property
    def replica_seconds(self) -> float:
        """What all replicas have lasted so far, from the decision to start each."""
        return self._paid_s + self._paid * (self._loop.time() - self._paid_until)

    @property
    def steps(self) -> int:
        """How many passes all replicas have run."""
        there = (*self._serving.values(), *self._stopping.values())
        return self._gone_steps + sum(replica.engine.steps for replica in there)

    async def choose(self) -> str:
        """Return a replica's address; raise Unavailable when none serves in time.

        Sessions hold no slot of Serve's, so all replicas look equally idle to it.
        """
        await asyncio.sleep(self._serve.choose_s)
        if not self._serving:
            self._started.clear()
            try:
                async with asyncio.timeout(CHOOSE_TIMEOUT_S):
                    await self._started.wait()
            except TimeoutError:
                raise Unavailable("no replica is running") from None
        addresses = list(self._serving)
        return addresses[self._random.randrange(len(addresses))]

    def scale(self, target: int) -> None:
        """Start or stop replicas until there are so many; the newest go first."""
        self.target = target
        while len(self._starting) + len(self._serving) < target:
            self._start(self.config.cold_start_s)
        while len(self._starting) + len(self._serving) > target:
            if self._starting:
                _, task = self._starting.popitem()
                task.cancel()
            else:
                address, replica = self._serving.popitem()
                self._stopping[address] = replica
                self._run(self._drain(replica))
        self._note()

    def lose(self, count: int) -> None:
        """End the processes of the oldest replicas; Serve replaces them."""
        for address in list(self._serving)[:count]:
            replica = self._serving.pop(address)
            self._end(replica)
            self._start(self._serve.replace_s + self.config.cold_start_s)
        self._note()

    def stall(self, count: int, seconds: float) -> None:
        """Let the oldest replicas compute nothing for a while."""
        for address in list(self._serving)[:count]:
            self._serving[address].engine.stall(seconds)

    @property
    def _paid(self) -> int:
        return len(self._starting) + len(self._serving) + len(self._stopping)

    def _start(self, after_s: float) -> None:
        self._made += 1
        number = self._made

        async def start() -> None:
            await asyncio.sleep(after_s)
            self._starting.pop(number)
            self._serve_one()
            self._note()

        self._starting[number] = self._run(start())

    def _serve_one(self) -> None:
        self._made += 1
        address = f"{self.name}-{self._made}:1"
        self._serving[address] = self._make(address)
        self._started.set()

    async def _drain(self, replica: R) -> None:
        replica.draining = True
        until = self._loop.time() + self.config.drain_s
        # As often as Serve looks: its replicas, too, are asked.
        while replica.sessions and self._loop.time() < until:  # noqa: ASYNC110
            await asyncio.sleep(_DRAIN_STEP_S)
        del self._stopping[replica.address]
        self._end(replica)
        self._note()

    def _end(self, replica: R) -> None:
        self._gone_steps += replica.engine.steps
        replica.engine.fail()

    def _note(self) -> None:
        now = self._loop.time()
        if self.sizes:
            self._paid_s += self.sizes[-1].paid * (now - self._paid_until)
        self._paid_until = now
        self.sizes.append(PoolSize(now, self._paid, len(self._serving), self.target))

    def _run(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
