"""A drafter replica, and a session's stream to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from drafter_service.batcher import Proposals
from foredraft.errors import Overloaded, Unavailable
from foredraft.messages import DraftBlock, DraftOpen, DraftOpened, Propose, ProposeAhead
from foredraft_simulator.services.link import IDLE_HOST, Channel, Host, Network
from foredraft_simulator.virtual.engine import VirtualEngine


class DrafterReplica:
    """One drafter; draining is set once it is to stop."""

    def __init__(
        self, address: str, engine: VirtualEngine[Proposals], host: Host, max_queue: int
    ) -> None:
        self.address, self.engine, self.host = address, engine, host
        self._max_queue = max_queue
        self.draining = False

    @property
    def sessions(self) -> int:
        """How many sessions are open."""
        return self.engine.engine.engine.sessions

    async def open(self, request: DraftOpen) -> tuple[int, DraftOpened]:
        """Open a session; raise Unavailable while draining."""
        if self.draining:
            raise Unavailable("the drafter is draining")
        return await self.engine.open_session(lambda it: it.engine.open(request))

    async def propose(self, handle: int, request: Propose | ProposeAhead) -> object:
        """Return what is proposed; raise Overloaded if too many wait."""
        if self.engine.waiting >= self._max_queue:
            raise Overloaded(f"{self._max_queue} proposals wait at the drafter")
        arrived = self.engine.now
        answer: object = await self.engine.ask(
            lambda it, future: it.submit(handle, request, future, arrived)
        )
        return answer


class SimulatedDraftStream:
    """A DraftStream over a link; its replica can be reached by verifiers, too."""

    def __init__(
        self,
        replica: DrafterReplica,
        there: Channel,
        back: Channel,
        ended: Callable[[SimulatedDraftStream], None],
    ) -> None:
        self._replica, self._there, self._back = replica, there, back
        self._ended = ended
        self._handle = -1
        self.address = replica.address

    async def start(self, request: DraftOpen) -> None:
        """Open the session; it is closed again if nobody waits for the answer."""
        await self._there.cross()
        self._handle, self.opened = await self._replica.open(request)
        try:
            await self._back.cross()
        except asyncio.CancelledError:
            await self.close()
            raise

    @property
    def draining(self) -> bool:
        """True once the replica asked the session to move."""
        return self._replica.draining

    async def propose(self, request: Propose) -> DraftBlock:
        """Return the block for request.base."""
        block = await self._asked(request)
        assert isinstance(block, DraftBlock)
        return block

    async def propose_ahead(self, request: ProposeAhead) -> tuple[DraftBlock, ...]:
        """Return the blocks for outcomes."""
        blocks = await self._asked(request)
        assert isinstance(blocks, tuple)
        return blocks

    async def _asked(self, request: Propose | ProposeAhead) -> object:
        await self._there.cross()
        answer = await self._replica.propose(self._handle, request)
        await self._back.cross()
        return answer

    async def close(self) -> None:
        """End the session on the drafter; never raises."""
        self._ended(self)
        self._there.send(partial(self._replica.engine.close, self._handle))


class SimulatedDrafterClient:
    """Opens sessions on one drafter replica, from one host."""

    def __init__(
        self, replica: DrafterReplica | None, network: Network, host: Host = IDLE_HOST
    ) -> None:
        self._replica, self._network, self._host = replica, network, host
        self._streams: set[SimulatedDraftStream] = set()

    @property
    def num_sessions(self) -> int:
        """How many of its sessions are open."""
        return len(self._streams)

    @property
    def lost(self) -> bool:
        """Whether the replica is known to be gone."""
        return self._replica is None or self._replica.engine.lost

    async def open(self, request: DraftOpen) -> SimulatedDraftStream:
        """Open a session; raise Unavailable where the replica is gone."""
        if self._replica is None or self._replica.engine.lost:
            await Channel(self._network).cross()
            raise Unavailable("no drafter at this address")
        there = Channel(self._network, self._replica.host)
        back = Channel(self._network, self._host)
        stream = SimulatedDraftStream(self._replica, there, back, self._streams.discard)
        await stream.start(request)
        self._streams.add(stream)
        return stream

    async def close(self) -> None:
        """End nothing: a session's end is its stream's."""

    def retire(self) -> None:
        """Keep nothing: there is no channel."""
